import { createRequire } from "node:module";
import { messageOf } from "../base/errors.ts";
import { formatPath, type Step } from "./setting.ts";

/** Loaded with the first file: a start without one is 25 ms faster. */
const loadYaml = (): typeof import("yaml") => createRequire(import.meta.url)("yaml");

/** A mapping at the top of a YAML file, with the places of its parts. */
export interface YamlMapping {
  readonly values: Readonly<Record<string, unknown>>;
  /** The line of the part at `path`, or of the nearest part around it, from 1; undefined if unknown. */
  lineOf(path: readonly Step[]): number | undefined;
  /** The file, line and path of a part, as messages begin. */
  place(path: readonly Step[]): string;
}

/** The mapping, or what is wrong. Both are absent if the file has no content. */
export interface YamlFile {
  readonly mapping: YamlMapping | undefined;
  readonly problems: readonly string[];
}

/** Parses a YAML file whose top is a mapping of `what`, such as "options to values". `name` is its name in messages. */
export function parseYamlFile(name: string, content: string, what: string): YamlFile {
  const { isMap, LineCounter, parseDocument } = loadYaml();
  const lines = new LineCounter();
  const document = parseDocument(content, { lineCounter: lines, prettyErrors: false });
  const faults = [...document.errors, ...document.warnings];
  if (faults.length > 0) {
    const problems = faults.map(
      (fault) => `${name}:${lines.linePos(fault.pos[0]).line}: not valid YAML: ${fault.message}`,
    );
    return { mapping: undefined, problems };
  }
  let values: unknown;
  try {
    values = document.toJS();
  } catch (error) {
    // An alias without its anchor, or aliases that would make the content too large.
    return { mapping: undefined, problems: [`${name}: not valid YAML: ${messageOf(error)}.`] };
  }
  if (values === null) return { mapping: undefined, problems: [] };
  if (!isMap(document.contents)) {
    return { mapping: undefined, problems: [`${name}: is not a mapping of ${what}.`] };
  }
  const lineOf = (path: readonly Step[]): number | undefined => {
    for (let length = path.length; length > 0; length--) {
      const node: unknown = document.getIn(path.slice(0, length), true);
      const offset = offsetOf(node);
      if (offset !== undefined) return lines.linePos(offset).line;
    }
    return undefined;
  };
  const place = (path: readonly Step[]): string => {
    const line = lineOf(path);
    return `${name}${line === undefined ? "" : `:${line}`}: ${formatPath(path)}`;
  };
  return {
    mapping: { values: values as Readonly<Record<string, unknown>>, lineOf, place },
    problems: [],
  };
}

/** The offset of a node in the document; undefined if unknown. */
function offsetOf(node: unknown): number | undefined {
  if (typeof node !== "object" || node === null || !("range" in node)) return undefined;
  const range: unknown = node.range;
  const offset: unknown = Array.isArray(range) ? range[0] : undefined;
  return typeof offset === "number" ? offset : undefined;
}
