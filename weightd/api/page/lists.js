// Arrivals, refusals, evictions.

const MEASURED = new Map();
const MEASURED_OVER = 6000;

/** Bytes a second over the last looks, for what does not say its rate itself. */
function rateOf(name, done, at) {
  const points = MEASURED.get(name) ?? [];
  points.push([at, done]);
  while (points.length > 2 && at - points[1][0] >= MEASURED_OVER) points.shift();
  MEASURED.set(name, points);
  const [began, before] = points[0];
  return at > began ? Math.max(0, ((done - before) * 1000) / (at - began)) : 0;
}

const nameOf = (one) => `${one.kind} ${one.key} ${one.since}`;

const PHASES = {
  queued: "queued", listing: "asks the source what it has", waiting: "waits for room",
  downloading: "", arriving: "", publishing: "verifies and publishes",
};

function progressWords(one, rate) {
  const words = [];
  const phase = PHASES[one.state] ?? one.state;
  if (phase) words.push(phase);
  if (one.bytes_total === null) words.push(`${bytes(one.bytes_done)}, of a size nobody told`);
  else words.push(`${bytes(one.bytes_done)} of ${bytes(one.bytes_total)}`);
  if (rate > 0) words.push(`${bytes(rate)}/s`);
  const left = one.eta ?? (rate > 0 && one.bytes_total !== null
    ? (one.bytes_total - one.bytes_done) / rate : null);
  if (left !== null && rate > 0) words.push(`${duration(left)} left`);
  if (one.attempts) words.push(`${count(one.attempts, "failure")} of the source so far`);
  return words.join(" · ");
}

const arrivalRows = new Rows($("arrivals").querySelector("ul"), "li", nameOf, (row) => {
  const [key, kind, words] = [named("span", "key"), make("span", "tag"), make("p", "small")];
  const [source, percent, bar] = [named("p", "small quiet source"), make("span", "percent"), make("progress")];
  row.append(make("div", "line", key, kind, percent), bar, words, source);
  return (one) => {
    const rate = one.rate ?? rateOf(nameOf(one), one.bytes_done, now());
    say(key, one.key);
    say(kind, one.kind);
    say(words, progressWords(one, rate));
    say(source, one.source === null ? "" : `from ${visible(one.source)}`);
    say(percent, one.bytes_total ? share(one.bytes_done, one.bytes_total) : "");
    set(bar, "aria-label", `${one.kind} of ${one.key}`);
    bar.max = one.bytes_total || 1;
    if (one.bytes_total === null && one.state !== "waiting") bar.removeAttribute("value");
    else bar.value = one.bytes_total === null ? 0 : one.bytes_done;
  };
});

function showArrivals({ arrivals, arrivals_total }) {
  show($("arrivals-none"), arrivals.length === 0);
  arrivalRows.show(arrivals);
  const present = new Set(arrivals.map(nameOf));
  for (const name of MEASURED.keys()) if (!present.has(name)) MEASURED.delete(name);
  show($("arrivals-more"), arrivals_total > arrivals.length);
  say($("arrivals-more"), `and ${number(arrivals_total - arrivals.length)} more`);
}

// A refusal of room, and a fetch that failed: each with what to do.

const KINDS = {
  "too-large": ["bad", "too large", "Permanent, a matter of configuration."],
  blocked: ["warn", "blocked", "Passes by itself once somebody lets go."],
  "disk-full": ["bad", "disk full", "Until somebody frees space on the filesystem."],
};

function refusedOf({ refusals, failures }) {
  const refused = refusals.map((one) => ({
    ...one, name: `${one.code} ${one.key}`, kind: KINDS[one.code], at: one.last_at, source: null,
  }));
  const codes = new Set(refused.map((one) => one.name));
  const failed = failures.filter((one) => !codes.has(`${one.code} ${one.key}`)).map((one) => ({
    ...one, name: `fetch ${one.key}`, count: 1, bytes: null, first_at: one.at,
    kind: [one.retryable ? "warn" : "bad", "fetch failed",
      one.retryable ? "May pass: asking again goes on where it ended." : "Stays so until somebody acts."],
  }));
  return [...refused, ...failed].sort((a, b) => Date.parse(b.at ?? 0) - Date.parse(a.at ?? 0));
}

const refusals = new Few($("refusals"), 5, (one) => one.name, (row) => {
  const [key, tag, size] = [named("span", "key"), make("span", "tag"), make("span", "small")];
  const [when, often] = [make("time", "small quiet"), make("span", "small quiet")];
  const [lasting, detail, source] = [make("strong"), named("span"), named("span", "quiet source")];
  row.append(make("div", "line", key, tag, size, when, often), make("p", "", lasting, " ", detail, " ", source));
  return (one) => {
    row.className = one.kind[0];
    tag.className = `tag ${one.kind[0]}`;
    say(key, one.key);
    say(tag, one.kind[1]);
    say(size, one.bytes === null ? "" : bytes(one.bytes));
    if (one.at !== null) since(when, one.at, "", " ago");
    say(often, one.count > 1 ? `${number(one.count)} times since ${moment(Date.parse(one.first_at) - skew)}` : "");
    say(lasting, one.kind[2]);
    say(detail, visible(one.detail));
    say(source, one.source === null ? "" : `From ${visible(one.source)}.`);
  };
});

const REASONS = {
  admission: "made room for", budget: "the budget was lowered", disk: "the disk ran full",
  request: "removed by hand", damage: "damaged",
};

const evictions = new Few($("evictions"), 5, (one) => String(one.sequence), (row) => {
  const [key, size, why] = [named("span", "key"), make("span", "small"), make("span", "small")];
  const [whom, idle, when] = [named("span", "key small"), make("span", "small quiet"), make("time", "small quiet")];
  row.append(make("div", "line", key, size, make("span", "why", why, " ", whom), idle, when));
  return (one) => {
    say(key, one.key);
    say(size, bytes(one.bytes));
    say(why, one.reason === "admission" && one.beneficiary === null
      ? "made room" : REASONS[one.reason] ?? one.reason);
    say(whom, one.beneficiary ?? "");
    say(idle, one.reason === "damage" ? "" : `unused for ${duration(one.idle_seconds)}`);
    since(when, one.at, "", " ago");
  };
});
