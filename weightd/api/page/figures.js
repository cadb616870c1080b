// The state, the figures, and what an operator should do something about.

const STATES = { ready: "ready", starting: "starting: looks at what is on the disk",
  draining: "stopping: takes nothing new" };

function showState({ node, status }) {
  say($("node"), visible(node));
  say($("state-text"), STATES[status.state] ?? status.state);
  set($("state"), "data-state", status.state);
  const up = duration((now() - Date.parse(status.started_at)) / 1000);
  say($("about"), `${status.version} · up ${up} · ${visible(status.root)}`);
}

function showFigures({ status, refetched_bytes }) {
  const lookups = status.hits + status.misses;
  say($("hit-rate"), lookups ? share(status.hits, lookups) : "–");
  say($("hit-more"), lookups
    ? `${count(status.hits, "hit")}, ${count(status.misses, "miss")} since the start`
    : "no lookup since the start");
  say($("model-count"), number(status.models));
  say($("model-more"), status.retired_models
    ? `and ${number(status.retired_models)} replaced but kept` : "here, and found by a lookup");
  say($("kept"), count(status.pins, "pin"));
  const oldest = status.oldest_pin_since
    ? `, the oldest ${duration((now() - Date.parse(status.oldest_pin_since)) / 1000)}` : "";
  say($("kept-more"), `${count(status.holds, "hold")}, ${count(status.uses, "use")}${oldest}`);
  say($("evicted"), number(status.evictions));
  say($("evicted-more"), status.evictions
    ? `${bytes(status.evicted_bytes)}${refetched_bytes
      ? `, ${bytes(refetched_bytes)} wanted again within a day` : " since the start"}`
    : "nothing since the start");
}

/** [how bad, what is wrong, what to do], the worst first. */
function notesOf({ status, unwell, unwritable }) {
  const notes = [];
  const note = (bad, what, todo) => notes.push([bad ? "bad" : "warn", what, todo]);
  if (!status.pins_known) {
    note(true, "The record of pins was lost, so nothing is evicted.",
      "See that every replica has pinned again, then: weightd pins --accept-loss. It is accepted by itself an hour after the loss.");
  }
  if (unwritable !== null) {
    note(true, `The last change of a pin could not be written down: ${unwritable}.`,
      "See to the disk of the root: a pin that is not on stable storage is not acknowledged.");
  }
  if (unwell !== null) {
    note(true, `weightd is not well. ${unwell}`,
      "See to its disk and to its log. Under a watchdog it is restarted by itself.");
  }
  if (status.over_budget_bytes) {
    note(true, `${bytes(status.over_budget_bytes)} are here over the budget, and kept by pins or use.`,
      "They go as replicas let go. Move some elsewhere, or raise capacity.");
  }
  const writable = status.filesystem_free_bytes - status.min_free_bytes;
  if (writable < 0) {
    note(true, `The disk has ${bytes(-writable)} less free than min_free asks for; others have ${bytes(status.others_bytes)}.`,
      "weightd evicts for it what it can. Free what others wrote, or lower min_free.");
  }
  if (status.damaged_models) {
    note(false, `${count(status.damaged_models, "model")} found damaged since the start, and taken out.`,
      "Something else writes below the root, or the disk fails: see the kernel’s log, then weightd verify.");
  }
  if (!status.in_use_detection.leases) {
    note(false, "This filesystem does not tell which files are open.",
      "Only pins and holds keep a model: start replicas by weightd run, or pin.");
  }
  if (status.waiting) {
    note(false, `${count(status.waiting, "arrival")} waiting for room.`,
      "Too much is pinned, in use or arriving: see who keeps what below. weightd’s log names what waits.");
  }
  if (status.foreign.length) {
    const names = status.foreign.slice(0, 5).map(visible).join(", ");
    const more = status.foreign.length > 5 ? ` and ${number(status.foreign.length - 5)} more` : "";
    note(false, `In the root, and not weightd’s: ${names}${more}.`,
      "They are left alone, and their bytes count as others’.");
  }
  return notes;
}

const noteRows = new Rows($("notes").querySelector("ul"), "li", ([, what]) => what, (row) => {
  const [what, todo] = [named("strong"), named("span", "quiet")];
  row.append(what, " ", todo);
  return ([bad, said, done]) => {
    row.className = bad;
    say(what, said);
    say(todo, done);
  };
});

function showNotes(seen) {
  const notes = notesOf(seen);
  show($("notes"), notes.length > 0);
  noteRows.show(notes);
}
