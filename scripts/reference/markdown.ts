/** Pieces of Markdown, in lines of up to 120 characters where Markdown allows it. */

const lineLength = 120;

export function code(text: string): string {
  return `\`${text}\``;
}

export function paragraph(text: string): string {
  return wrapped(text, "");
}

export function bullet(text: string): string {
  return `- ${wrapped(text, "  ")}`;
}

/** A table, whose rows Markdown does not let be broken. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`;
  return [line(head), `|${"---|".repeat(head.length)}`, ...rows.map(line)].join("\n");
}

/** Breaks between words, but not within code spans. `indent` begins every line but the first. */
function wrapped(text: string, indent: string): string {
  const lines: string[] = [];
  let line = "";
  for (const word of text.match(/(?:`[^`]*`|[^\s`])+/g) ?? []) {
    if (line !== "" && indent.length + line.length + 1 + word.length > lineLength) {
      lines.push(line);
      line = "";
    }
    line = line === "" ? word : `${line} ${word}`;
  }
  lines.push(line);
  return lines.join(`\n${indent}`);
}
