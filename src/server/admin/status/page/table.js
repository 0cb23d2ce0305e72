import { element, setClass, setText } from "./format.js";

/** Fills a table's body, cell by cell. A cell is a text, or has a text and a class. */
export function fill(body, columns, rows) {
  while (body.rows.length > rows.length) body.deleteRow(-1);
  for (const [i, row] of rows.entries()) fillRow(body.rows[i] ?? body.insertRow(), columns, row);
}

/** Fills one row. A column with `make` makes the content of its cell once, and gets it back to update it. */
export function fillRow(line, columns, row) {
  for (const [j, column] of columns.entries()) {
    const content = row[j];
    const { text, kind = "" } = typeof content === "string" ? { text: content } : content;
    let cell = line.cells[j];
    if (cell === undefined) {
      cell = column.isHeading ? element("th", { scope: "row" }) : element("td");
      if (column.make !== undefined) cell.append(column.make());
      line.append(cell);
    }
    setClass(cell, [column.kind ?? "", kind].join(" ").trim());
    setText(column.make === undefined ? cell : cell.firstElementChild, text);
    if (column.kind === "long" && cell.title !== text) cell.title = text;
  }
}

export function head(table, columns) {
  const row = element("tr");
  for (const { title, kind, sort } of columns) {
    const cell = element("th", { scope: "col", class: kind === "number" ? "number" : "" });
    if (sort === undefined) cell.append(title);
    else {
      cell.dataset.sort = sort;
      cell.append(element("button", { type: "button" }, title));
    }
    row.append(cell);
  }
  table.tHead.append(row);
}
