import { blankCode, hidden } from "./hidden.ts";

/** The text of a Markdown page at its places: code, the targets of links and HTML comments are hidden. */
export function proseOfMarkdown(source: string): string {
  const withoutBlocks = source.replaceAll(
    /^([ \t]*)(```+|~~~+).*?(?:^\1\2[ \t]*$|(?!.))|<!--.*?-->/gms,
    hidden,
  );
  return blankCode(withoutBlocks).replaceAll(/(?<=\])\([^)\s]*\)|https?:\/\/[^\s)>]+/g, hidden);
}
