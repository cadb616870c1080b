// Looks every two seconds while somebody can see it; says when nobody answers, and comes back.

const EVERY = 2000;
const ANSWER_WITHIN = 10000;

let shown = null;
let lostAt = null;
let asking = null;
let timer = 0;

class Refused extends Error {}

async function ask() {
  asking?.abort();
  const mine = asking = new AbortController();
  const timeout = setTimeout(() => mine.abort(new Error("no answer in time")), ANSWER_WITHIN);
  try {
    const url = new URL("./", location.href);
    url.search = modelsQuery();
    const answer = await fetch(url, {
      headers: { Accept: "application/json" }, cache: "no-store", signal: mine.signal,
    });
    if (answer.status === 401) throw new Refused("it asks for the token anew: reload this page");
    const told = await answer.json();
    if (!answer.ok) throw new Refused(told.detail ?? `status ${answer.status}`);
    return told;
  } finally {
    clearTimeout(timeout);
  }
}

async function look() {
  clearTimeout(timer);
  let mine = null;
  try {
    const looking = ask();
    mine = asking;
    const seen = await looking;
    if (mine !== asking) return;
    found(seen);
  } catch (error) {
    if (mine !== asking) return;
    lost(error);
  }
  if (!document.hidden) timer = setTimeout(look, EVERY);
}

function found(seen) {
  if (shown !== null && shown.status.version !== seen.status.version) {
    // Another release answers, which may say it otherwise.
    location.reload();
    return;
  }
  shown = seen;
  lostAt = null;
  setClock(seen.now);
  show($("lost"), false);
  say($("state-more"), "");
  set(document.documentElement, "data-lost", null);
  draw();
}

function draw() {
  noteSelection();
  showState(shown);
  showNotes(shown);
  showBudget(shown);
  showFigures(shown);
  showArrivals(shown);
  refusals.show(refusedOf(shown));
  evictions.show(shown.evictions);
  showModels(shown);
  showExample(shown);
  showTitle();
}

function showExample({ socket }) {
  const place = visible(socket ?? "/run/weightd/weightd.sock");
  const quoted = /^[\w./-]*$/.test(place) ? place : `'${place.replaceAll("'", "'\\''")}'`;
  say($("example"), [
    "# a file, as it is",
    `curl --fail-with-body --unix-socket ${quoted} \\`,
    "  -T model.gguf http://localhost/v1/models/org/my-model@v1",
    "",
    "# or a directory, with progress",
    `weightd put --socket ${quoted} org/my-model@v1 my-model/`,
  ].join("\n"));
}

function showTitle() {
  const node = shown === null ? "" : ` · ${visible(shown.node)}`;
  const bad = shown !== null && notesOf(shown).some(([how]) => how === "bad");
  const title = `${lostAt !== null ? "No answer: " : bad ? "Attention: " : ""}weightd${node}`;
  if (document.title !== title) document.title = title;
}

function lost(error) {
  lostAt ??= Date.now();
  const at = moment(lostAt);
  const what = error instanceof Refused
    ? `Since ${at} weightd answers with an error: ${visible(error.message)}`
    : `weightd has not answered since ${at}.`;
  say($("lost-text"), what);
  // Who hears the page is told by the one part of it that speaks up.
  say($("state-more"), `: ${what}`);
  say($("state-text"), error instanceof Refused ? "ailing" : "no answer");
  set($("state"), "data-state", "lost");
  set(document.documentElement, "data-lost", "");
  show($("lost"), true);
  showTitle();
  showLost();
}

function showLost() {
  if (lostAt === null) return;
  const ago = duration((Date.now() - lostAt) / 1000);
  const what = shown === null ? "" : " What is below is what it said last.";
  say($("lost-more"), `${ago} ago.${what} This page asks again every two seconds, and goes on by itself. `
    + "The cause is in systemctl status weightd on the node, or in its pod’s log.");
}

function tickOn() {
  if (document.hidden) return;
  // What was said last grows no older by itself: nobody knows what has become of it.
  noteSelection();
  if (lostAt === null) {
    tickAll();
    if (shown !== null) showState(shown);
  }
  showLost();
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) clearTimeout(timer);
  else look();
});
listenForOrder(() => {
  if (shown !== null) showModels(shown);
  look();
});
setInterval(tickOn, 1000);
look();
