import { hidden } from "./hidden.ts";
import { proseOfMarkdown } from "./markdown.ts";
import { allowedProse, type ProseRule, proseRules } from "./rules.ts";
import { proseOfTypeScript } from "./typescript.ts";

/** A place where a rule matches. */
export interface ProseFinding {
  readonly rule: ProseRule;
  /** From 1. */
  readonly line: number;
  /** From 1. */
  readonly column: number;
  readonly text: string;
}

/** Returns the matches of all rules in the prose of a file, in order. `path` determines the kind of file by its end. */
export function findingsIn(path: string, source: string): readonly ProseFinding[] {
  const prose = withoutAllowed(
    path.endsWith(".md") ? proseOfMarkdown(source) : proseOfTypeScript(source),
  );
  const findings = proseRules.flatMap((rule) =>
    [...prose.matchAll(flexible(rule.pattern))].map(({ index, 0: text }) => ({
      rule,
      ...placeOf(source, index),
      text: text.replaceAll(/\s+/g, " "),
    })),
  );
  return findings.sort((a, b) => a.line - b.line || a.column - b.column);
}

function withoutAllowed(prose: string): string {
  return allowedProse.reduce((rest, allowed) => rest.replaceAll(flexible(allowed), hidden), prose);
}

/** Case-insensitive; a blank in the pattern matches any white space. */
function flexible({ source }: RegExp): RegExp {
  return new RegExp(source.replaceAll(" ", "\\s+"), "gi");
}

function placeOf(
  source: string,
  index: number,
): { readonly line: number; readonly column: number } {
  const before = source.slice(0, index).split("\n");
  return { line: before.length, column: (before.at(-1) ?? "").length + 1 };
}
