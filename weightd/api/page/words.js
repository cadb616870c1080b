// How figures are said. Sizes are decimal, as those of disks and models; times are of two units.

const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

function bytes(count) {
  let size = count, unit = 0;
  for (; Math.abs(size) >= 999.95 && unit < UNITS.length - 1; unit++) size /= 1000;
  return `${size.toFixed(1).replace(/\.0$/, "")}\u00a0${UNITS[unit]}`;
}

const NUMBER = new Intl.NumberFormat("en");
const number = (count) => NUMBER.format(count);

/** So many of something: count(2, "fetch") is "2 fetches". */
function count(many, what) {
  const plural = /(ch|s)$/.test(what) ? "es" : "s";
  return `${number(many)}\u00a0${what}${many === 1 ? "" : plural}`;
}

/** A part in percent; what there is at all is never said to be nothing, nor what is missing all. */
function share(part, whole) {
  if (!whole) return "";
  const percent = (100 * part) / whole;
  if (part > 0 && percent < 1) return "<\u202f1%";
  if (part < whole && percent > 99) return ">\u202f99%";
  return `${Math.round(percent)}%`;
}

const STEPS = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]];

function duration(seconds) {
  let left = Math.max(0, Math.floor(seconds));
  for (let at = 0; at < STEPS.length; at++) {
    const [size, unit] = STEPS[at];
    if (left < size && unit !== "s") continue;
    const told = `${Math.floor(left / size)}\u202f${unit}`;
    const next = STEPS[at + 1];
    const more = next && Math.floor((left % size) / next[0]);
    return more ? `${told}\u00a0${more}\u202f${next[1]}` : told;
  }
  return "0\u202fs";
}

const CLOCK = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const DAY = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });

/** An instant as a person reads it, with its day unless that is today. */
function moment(milliseconds) {
  const at = new Date(milliseconds);
  return (at.toDateString() === new Date().toDateString() ? CLOCK : DAY).format(at);
}

// -- Putting it on the page. Whatever comes from the daemon becomes text and nothing else. --------

const $ = (id) => document.getElementById(id);

/** A new element with a class and text or elements in it. */
function make(tag, name = "", ...content) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  made.append(...content);
  return made;
}

/** Names come from outside: isolated, so that no writing direction leaks into what is around. */
const named = (tag, name = "") => {
  const made = make(tag, name);
  made.dir = "auto";
  return made;
};

/** The texts in which a selection begins and ends, asked once for all that is then said. */
let selected = [];
function noteSelection() {
  const selection = getSelection();
  selected = selection.isCollapsed ? [] : [selection.anchorNode, selection.focusNode];
}

/** Set an element's only text, if it is another; one in which a selection ends is let be. */
function say(element, text) {
  const node = element.firstChild;
  if (node === null) {
    if (text !== "") element.append(text);
  } else if (node.data !== text && !selected.includes(node)) {
    node.data = text;
  }
}

function set(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

function show(element, whether) {
  if (element.hidden === whether) element.hidden = !whether;
}

/** Control and invisible characters, and those that turn the writing round, as one can see them. */
function visible(text) {
  return text.replace(
    /[\u0000-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g,
    (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

// -- Time: as the daemon's clock has it, whatever this one says. -----------------------------------

let skew = 0;
const now = () => Date.now() + skew;
const setClock = (said) => { skew = Date.parse(said) - Date.now(); };

/** Have an element say how long ago an instant was; it goes on by itself. */
function since(element, instant, before = "", after = "") {
  element.dataset.before = before;
  element.dataset.after = after;
  if (element.dateTime !== instant) {
    element.dateTime = instant;
    element.title = moment(Date.parse(instant) - skew);
  }
  tick(element);
}

function tick(element) {
  const passed = (now() - Date.parse(element.dateTime)) / 1000;
  say(element, element.dataset.before + duration(Math.abs(passed)) + element.dataset.after);
}

const tickAll = () => document.querySelectorAll("time[datetime]").forEach(tick);
