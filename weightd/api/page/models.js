// The table of models: sorted and filtered here at once, and by the daemon where it has more.

const ORDERS = {
  key: (one) => one.key,
  bytes: (one) => one.bytes,
  published: (one) => Date.parse(one.published_at),
  used: (one) => Date.parse(one.last_used_at),
  hits: (one) => one.hits,
  kept: (one) => one.pins + (one.use === null ? 0 : 1),
};
/** Age and idle time grow while their instants fall behind. */
const TURNED = new Set(["published", "used"]);
const LIMIT = 500;

const order = { by: "used", down: true, match: "" };

const sortOf = () => (order.down ? "-" : "") + order.by;
const modelsQuery = () => new URLSearchParams({ limit: LIMIT, sort: sortOf(), match: order.match });

function inOrder(models) {
  const rank = ORDERS[order.by];
  const sign = order.down ? -1 : 1;
  const needle = order.match.toLowerCase();
  return models
    .filter((one) => one.key.toLowerCase().includes(needle))
    .map((one) => [rank(one), one])
    .sort(([a, one], [b, other]) => {
      if (a !== b) return a < b ? -sign : sign;
      return one.key < other.key ? -sign : sign;
    })
    .map(([, one]) => one);
}

// -- Who keeps a model ----------------------------------------------------------------------------

const KEEPS = { pin: "pinned", hold: "held", use: "in use" };

function keeperRow(row) {
  const [kind, name, long] = [make("span", "tag"), named("span", "name"), make("time", "small quiet")];
  const until = make("time", "small quiet");
  row.append(kind, " ", name, " ", long, " ", until);
  return (one) => {
    kind.className = `tag ${one.kind}`;
    say(kind, KEEPS[one.kind]);
    const process = one.process === null ? "a process out of sight" : visible(one.process);
    say(name, one.holder ?? (one.pid === null ? process : `${process} (${one.pid})`));
    since(long, one.since, "for ");
    if (one.until !== null) since(until, one.until, "· lapses in ");
    show(until, one.until !== null);
  };
}

const keeperName = (one) => `${one.kind} ${one.holder ?? one.pid ?? ""}`;

/** One keeper is said at once; of several the first, and the others unfold. */
function keepersCell(cell) {
  const nobody = make("span", "quiet", "nobody");
  const first = make("div", "keeper");
  const fillFirst = keeperRow(first);
  const [list, summary] = [make("ul", "keepers"), make("summary", "small")];
  const rest = new Rows(list, "li", keeperName, keeperRow);
  const unfolding = make("details", "", summary, list);
  cell.append(nobody, first, unfolding);
  return ({ key, keepers, keepers_total }) => {
    const more = keepers_total - 1;
    show(nobody, keepers.length === 0);
    show(first, keepers.length > 0);
    show(unfolding, more > 0);
    if (keepers.length) fillFirst(keepers[0]);
    rest.show(keepers.slice(1));
    if (more <= 0) return;
    const hidden = keepers_total - keepers.length;
    say(summary, `and ${number(more)} more${hidden ? `, of which ${number(keepers.length - 1)} are told` : ""}`);
    set(summary, "aria-label", `${more} more who keep ${key}`);
  };
}

const modelRows = new Rows($("table").tBodies[0], "tr", (one) => `${one.key} ${one.generation}`, (row) => {
  set(row, "role", "row");
  const [key, replaced, source] = [named("span", "key"), make("span", "tag replaced", "replaced"), named("span", "small quiet source")];
  const [age, idle] = [make("time"), make("time")];
  const label = (text) => make("span", "label", text);
  const size = make("span"), hits = make("span");
  const head = make("th", "", make("div", "line", key, replaced), source);
  head.scope = "row";
  set(head, "role", "rowheader");
  const cells = [
    make("td", "number", label("Size"), size),
    make("td", "number", label("Age"), age),
    make("td", "number", label("Idle"), idle),
    make("td", "number", label("Hits"), hits),
    make("td", "kept"),
  ];
  cells.forEach((cell) => set(cell, "role", "cell"));
  const fillKeepers = keepersCell(cells[4]);
  row.append(head, ...cells);
  return (one) => {
    say(key, one.key);
    show(replaced, !one.current);
    say(source, one.source === null ? "" : visible(one.source));
    say(size, bytes(one.bytes));
    since(age, one.published_at);
    since(idle, one.last_used_at);
    say(hits, number(one.hits));
    fillKeepers(one);
  };
});

// -- The head: what it is sorted by -----------------------------------------------------------------

const heads = [...$("table").tHead.querySelectorAll("th")];

function showOrder() {
  for (const head of heads) {
    const by = head.dataset.sort;
    const up = order.down === TURNED.has(by);
    set(head, "aria-sort", by === order.by ? (up ? "ascending" : "descending") : null);
  }
}

/** Have the models shown anew, and asked for anew, whenever somebody sorts or filters. */
function listenForOrder(changed) {
  for (const head of heads) {
    head.querySelector("button").addEventListener("click", () => {
      const by = head.dataset.sort;
      // Names begin with A, figures with the greatest.
      order.down = order.by === by ? !order.down : by !== "key" && !TURNED.has(by);
      order.by = by;
      changed();
    });
  }
  $("filter").addEventListener("input", () => {
    order.match = $("filter").value.trim();
    changed();
  });
}

function showModels(seen) {
  const { generations, matching, models, status } = seen;
  const found = inOrder(models);
  const starting = status.state === "starting";
  showOrder();
  show($("empty"), generations === 0 && !starting);
  show($("table"), found.length > 0);
  show($("nothing"), generations > 0 && found.length === 0);
  modelRows.show(found);
  const here = order.match === "" ? generations : Math.max(found.length, matching);
  say($("shown"), generations === 0 ? ""
    : order.match === "" ? count(generations, "model") : `${number(found.length)} of ${count(generations, "model")}`);
  show($("rest"), here > found.length && found.length > 0);
  say($("rest"), `${number(here - found.length)} more are not shown: sort by another column, or filter, to see them.`);
}
