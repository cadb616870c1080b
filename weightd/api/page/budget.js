// The budget as one bar by occupant, and the filesystem below it.

const OCCUPANTS = {
  held: ["held or in use", "The kernel says that a process has it"],
  pinned: ["pinned", "A holder keeps it until it unpins"],
  retired: ["retired", "Replaced by a newer version, and still kept by somebody"],
  idle: ["evictable", "Goes when room is needed, the longest unused first"],
  arriving: ["arriving", "On the disk already, for arrivals under way"],
  promised: ["promised", "Reserved for arrivals, not yet written"],
  partial: ["unfinished", "What broken-off fetches left, to go on from; the first to go"],
  doomed: ["leaving", "Evicted, and not yet given back by the disk"],
  taken: ["not on the disk", "Of the budget, but others occupy it or it has to stay free"],
  free: ["free", "For the next arrival"],
};

/** Bytes by occupant; they come to the capacity, or to more where that was lowered. */
function occupants({ status, held_bytes }) {
  const resident = status.resident_bytes;
  const kept = Math.min(resident, Math.max(0, status.pinned_bytes - status.retired_bytes));
  const held = Math.min(kept, held_bytes);
  const written = Math.min(status.written_bytes, status.reserved_bytes);
  const unwritten = status.reserved_bytes - written;
  // What is leaving stands where an arrival is promised room, or where it is free again soon.
  const overlap = Math.min(unwritten, status.doomed_bytes);
  const free = Math.max(0, status.free_bytes - (status.doomed_bytes - overlap));
  const writable = Math.max(0, status.filesystem_free_bytes - status.min_free_bytes);
  const usable = Math.min(free, Math.max(0, writable - (unwritten - overlap)));
  return {
    held,
    pinned: kept - held,
    retired: status.retired_bytes,
    idle: resident - kept,
    arriving: written,
    promised: unwritten - overlap,
    partial: status.parked_bytes,
    doomed: status.doomed_bytes,
    taken: free - usable,
    free: usable,
  };
}

class Bar {
  constructor(element) {
    this.element = element;
    this.parts = new Map();
    this.limit = make("div", "limit");
    this.limit.hidden = true;
    element.append(this.limit);
  }

  /** `parts` are [name, bytes]; those of no bytes are not drawn.  Past `capacity` is a mark. */
  show(parts, label, capacity = Infinity) {
    const whole = parts.reduce((sum, [, size]) => sum + size, 0) || 1;
    const over = capacity < whole;
    if (over) this.limit.style.left = `${(100 * capacity) / whole}%`;
    show(this.limit, over);
    for (const [name, size] of parts) {
      const part = this.part(name);
      part.style.flexGrow = String(size / whole);
      show(part, size > 0);
    }
    set(this.element, "aria-label", label);
  }

  part(name) {
    let part = this.parts.get(name);
    if (part === undefined) {
      part = make("div", `part ${name}`);
      this.parts.set(name, part);
      this.element.append(part);
    }
    return part;
  }
}

const budgetBar = new Bar($("bar"));
const diskBar = new Bar($("disk"));

const legend = new Rows($("legend").tBodies[0], "tr", ([name]) => name, (row) => {
  const [swatch, label] = [make("span", "swatch part"), make("span")];
  const occupant = make("th", "", swatch, label);
  occupant.scope = "row";
  const [size, part, meaning] = [make("td", "number"), make("td", "number quiet"), make("td", "quiet meaning")];
  row.append(occupant, size, part, meaning);
  return ([name, count, whole]) => {
    swatch.classList.add(name);
    say(label, OCCUPANTS[name][0]);
    say(size, bytes(count));
    say(part, share(count, whole));
    say(meaning, OCCUPANTS[name][1]);
  };
});

function showBudget(seen) {
  const { status } = seen;
  const parts = Object.entries(occupants(seen));
  const present = parts.filter(([name, size]) => size > 0 || name === "free" || name === "idle");
  const capacity = status.capacity_bytes;
  say($("used"), bytes(status.used_bytes));
  say($("capacity"), `of ${bytes(capacity)} on the disk${
    status.over_budget_bytes ? `, ${bytes(status.over_budget_bytes)} over the budget` : ""}`);
  const words = present.map(([name, size]) => `${OCCUPANTS[name][0]} ${bytes(size)}`).join(", ");
  budgetBar.show(parts, `Budget of ${bytes(capacity)}: ${words}`, capacity);
  legend.show(present.map(([name, size]) => [name, size, capacity]));
  showDisk(status);
}

function showDisk(status) {
  const total = status.filesystem_total_bytes, free = status.filesystem_free_bytes;
  const own = Math.max(0, total - free - status.others_bytes);
  const kept = Math.min(free, status.min_free_bytes);
  const words = `weightd ${bytes(own)}, others ${bytes(status.others_bytes)}, `
    + `${bytes(free)} free, of which ${bytes(status.min_free_bytes)} must stay so`;
  diskBar.show(
    [["own", own], ["others", status.others_bytes], ["free", free - kept], ["minimum", kept]],
    `Filesystem of ${bytes(total)}: ${words}`,
  );
  say($("disk-text"), `${bytes(total)}: ${words}.`);
}
