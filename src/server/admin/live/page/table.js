// The table of the objects that match the filter.

import { byId, element, labelOf, numberOf, setText, textOf } from "./page.js";

/** Maximum number of rows, and of columns of declared fields. */
const maxRows = 200;
const maxFields = 4;
/** How long a change is marked, in milliseconds. */
const markedMs = 3_000;

const orders = {
  Key: (a, b) => (a.object.key < b.object.key ? -1 : 1),
  Revision: (a, b) => a.object.modRevision - b.object.modRevision,
  Version: (a, b) => a.object.version - b.object.version,
};

export class ObjectTable {
  /** By their keys. */
  #entries = new Map();
  #fields = [];
  #order = "Key";
  #isDescending = false;
  #choose;
  onSort = () => {};

  constructor(choose) {
    this.#choose = choose;
  }

  /** Begins with no object. `fields`: those that the resource declares. */
  begin(fields = []) {
    this.#entries = new Map();
    this.#fields = fields.slice(0, maxFields);
    this.#drawHead();
  }

  get(key) {
    return this.#entries.get(key)?.object;
  }

  set(object, isMarked) {
    this.#entries.set(object.key, { object, changedAt: isMarked ? performance.now() : 0 });
  }

  delete(key) {
    this.#entries.delete(key);
  }

  draw(filter, chosen) {
    const wanted = filter.toLowerCase();
    const matches = ({ object }) =>
      object.key.toLowerCase().includes(wanted) || textOf(object).toLowerCase().includes(wanted);
    const all = [...this.#entries.values()];
    const matched = wanted === "" ? all : all.filter(matches);
    const sign = this.#isDescending ? -1 : 1;
    matched.sort((a, b) => sign * orders[this.#order](a, b));
    const shown = matched.slice(0, maxRows);
    const counted = wanted === "" ? "" : `${numberOf(matched.length)} of `;
    const cut = matched.length > maxRows ? `, the first ${maxRows} are shown` : "";
    const noun = all.length === 1 ? "object" : "objects";
    setText(byId("matched"), `${counted}${numberOf(all.length)} ${noun}${cut}`);
    this.#drawRows(shown, chosen);
  }

  #drawHead() {
    const row = element("tr");
    const isSortable = (name) => Object.hasOwn(orders, name);
    const values = this.#fields.length === 0 ? ["Value"] : this.#fields;
    for (const name of ["Key", ...values, "Revision", "Version"]) {
      const head = element("th", "", { scope: "col" });
      if (name === "Revision" || name === "Version") head.className = "number";
      if (isSortable(name) && !this.#fields.includes(name)) {
        const button = element("button", name, { type: "button" });
        button.addEventListener("click", () => this.#sortBy(name));
        head.append(button);
        head.setAttribute("aria-sort", this.#sortOf(name));
      } else head.textContent = name;
      row.append(head);
    }
    byId("table").tHead.replaceChildren(row);
  }

  #sortOf(name) {
    if (name !== this.#order) return "none";
    return this.#isDescending ? "descending" : "ascending";
  }

  #sortBy(name) {
    // The newest change is what is looked for.
    this.#isDescending = name === this.#order ? !this.#isDescending : name !== "Key";
    this.#order = name;
    for (const head of byId("table").tHead.querySelectorAll("[aria-sort]")) {
      head.setAttribute("aria-sort", this.#sortOf(head.textContent));
    }
    this.onSort();
  }

  /** Rows of keys that are shown already stay, so that the focus does. */
  #drawRows(entries, chosen) {
    const body = byId("table").tBodies[0];
    const known = new Map([...body.rows].map((row) => [row.dataset.key, row]));
    const now = performance.now();
    entries.forEach(({ object, changedAt }, i) => {
      const row = known.get(object.key) ?? this.#newRow(object.key);
      known.delete(object.key);
      this.#fill(row, object);
      row.classList.toggle("changed", now - changedAt < markedMs && changedAt > 0);
      row.classList.toggle("chosen", object.key === chosen);
      if (body.rows[i] !== row) body.insertBefore(row, body.rows[i] ?? null);
    });
    for (const row of known.values()) row.remove();
    clearTimeout(this.#unmarking);
    if (body.querySelector(".changed") !== null) {
      this.#unmarking = setTimeout(() => this.onSort(), markedMs);
    }
  }

  #unmarking;

  #newRow(key) {
    const row = element("tr");
    row.dataset.key = key;
    const head = element("td");
    const button = element("button", labelOf(key), { type: "button", class: "key", title: key });
    button.addEventListener("click", () => this.#choose(key));
    head.append(button);
    const columns = Math.max(1, this.#fields.length);
    row.append(
      head,
      ...Array.from({ length: columns }, () => element("td", "", { class: "value" })),
    );
    row.append(element("td", "", { class: "number" }), element("td", "", { class: "number" }));
    return row;
  }

  #fill(row, object) {
    const texts = this.#fields.length === 0 ? [preview(object)] : fieldsOf(object, this.#fields);
    const all = [...texts, numberOf(object.modRevision), numberOf(object.version)];
    for (const [i, text] of all.entries()) setText(row.cells[i + 1], text);
  }
}

function preview(object) {
  return textOf(object).slice(0, 400).replace(/\s+/g, " ").slice(0, 120);
}

/** The texts of fields such as spec.node in a value in JSON. */
function fieldsOf(object, fields) {
  let root;
  try {
    root = JSON.parse(textOf(object));
  } catch {
    root = undefined;
  }
  return fields.map((field) => {
    const found = field.split(".").reduce((value, name) => value?.[name], root);
    return found === undefined || typeof found === "object" ? "" : String(found);
  });
}
