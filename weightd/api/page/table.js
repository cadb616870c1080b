// Lists whose rows stay the same elements from one look to the next: focus, selection and what is
// unfolded stay, and nothing flickers.

/** Keeps one row for each item: `build(row)` answers what `fill(item)`s it from then on. */
class Rows {
  constructor(parent, tag, name, build) {
    this.parent = parent;
    this.tag = tag;
    this.name = name;
    this.build = build;
    this.rows = new Map();
  }

  show(items) {
    const wanted = new Set(items.map(this.name));
    for (const [name, row] of this.rows) {
      if (!wanted.has(name)) {
        row.element.remove();
        this.rows.delete(name);
      }
    }
    const focused = document.activeElement;
    let place = this.parent.firstElementChild;
    for (const item of items) {
      const { element, fill } = this.row(this.name(item));
      fill(item);
      if (element === place) {
        place = place.nextElementSibling;
      } else if (place !== null && place.nextElementSibling === element) {
        // The one in between goes further down: it moves, and not all that follow it.
        const later = place;
        place = element.nextElementSibling;
        this.move(later, place);
      } else {
        this.move(element, place);
      }
    }
    this.settle(items);
    if (focused !== document.activeElement && focused.isConnected) {
      focused.focus({ preventScroll: true });
    }
  }

  row(name) {
    let row = this.rows.get(name);
    if (row === undefined) {
      const element = make(this.tag);
      row = { element, fill: this.build(element) };
      this.rows.set(name, row);
    }
    return row;
  }

  /** What was moved down may stand too far up: put all in order, most of which is. */
  settle(items) {
    let place = this.parent.firstElementChild;
    for (const item of items) {
      const { element } = this.rows.get(this.name(item));
      if (element === place) place = place.nextElementSibling;
      else this.move(element, place);
    }
  }

  move(element, place) {
    if (element.isConnected && this.parent.moveBefore) this.parent.moveBefore(element, place);
    else this.parent.insertBefore(element, place);
  }
}

/** A list of which the first few are shown, until somebody asks for the rest. */
class Few {
  constructor(section, most, name, build) {
    this.most = most;
    this.all = false;
    this.items = [];
    this.rows = new Rows(section.querySelector("ul"), "li", name, build);
    this.none = section.querySelector(".none");
    this.button = section.querySelector("button.more");
    this.button.addEventListener("click", () => {
      this.all = !this.all;
      this.show(this.items);
    });
  }

  show(items) {
    this.items = items;
    show(this.none, items.length === 0);
    this.rows.show(this.all ? items : items.slice(0, this.most));
    show(this.button, items.length > this.most);
    say(this.button, this.all ? `Show the last ${this.most}` : `Show all ${items.length}`);
    set(this.button, "aria-expanded", String(this.all));
  }
}
