import { styleText } from "node:util";

export type Colour = "green" | "yellow" | "red";

/** A cell: printable text, with a colour if colours are enabled. */
export type Cell = string | { readonly text: string; readonly colour: Colour };

export interface TableOptions {
  /** Maximum width of a line, in characters; undefined: lines are not cut. */
  readonly columns?: number | undefined;
  readonly colours: boolean;
  /** Minimum width of each column, in characters. */
  readonly widths?: readonly number[] | undefined;
}

/**
 * A table that is printed incrementally, with the headings first. A column is as wide as its widest cell so far, so the
 * rows of one call are aligned, and columns only become wider.
 */
export class Table {
  readonly #headings: readonly string[];
  readonly #options: TableOptions;
  readonly #widths: number[];
  #hasBegun = false;

  constructor(headings: readonly string[], options: TableOptions) {
    this.#headings = headings;
    this.#options = options;
    this.#widths = headings.map((heading, i) =>
      Math.max(length(heading), options.widths?.[i] ?? 0),
    );
  }

  /** Formats rows as lines. */
  format(rows: readonly (readonly Cell[])[]): string {
    for (const row of rows) {
      for (const [i, cell] of row.entries()) {
        this.#widths[i] = Math.max(this.#widths[i] ?? 0, length(textOf(cell)));
      }
    }
    const lines = this.#hasBegun ? rows : [this.#headings, ...rows];
    this.#hasBegun = true;
    return lines.map((row) => `${this.#line(row)}\n`).join("");
  }

  #line(row: readonly Cell[]): string {
    let line = "";
    let left = this.#options.columns ?? Number.POSITIVE_INFINITY;
    for (const [i, cell] of row.entries()) {
      const last = i === row.length - 1;
      const text = last ? textOf(cell) : padded(textOf(cell), (this.#widths[i] ?? 0) + 2);
      const shown = cut(text, left);
      left -= length(shown);
      line += typeof cell === "string" || !this.#options.colours ? shown : styled(cell, shown);
    }
    return line.trimEnd();
  }
}

function styled(cell: { readonly colour: Colour }, shown: string): string {
  return styleText(cell.colour, shown, { validateStream: false });
}

function textOf(cell: Cell): string {
  return typeof cell === "string" ? cell : cell.text;
}

/** Length in code points, which is the width on a terminal for most scripts. */
function length(text: string): number {
  return [...text].length;
}

function padded(text: string, width: number): string {
  return text + " ".repeat(Math.max(0, width - length(text)));
}

function cut(text: string, room: number): string {
  if (text.length <= room) return text;
  const characters = [...text];
  if (characters.length <= room) return text;
  return room < 1 ? "" : `${characters.slice(0, room - 1).join("")}…`;
}
