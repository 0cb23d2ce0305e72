import { isMap, LineCounter, parseDocument } from "yaml";
import { nearest } from "./nearest.ts";
import { fileKeyOf, type OptionName, optionNames } from "./options.ts";
import { formatPath, type Origin, type Setting, type Settings, type Step } from "./setting.ts";

/** The content of a configuration file. */
export interface ConfigFile {
  readonly settings: Settings;
  readonly problems: readonly string[];
}

/** Parses a YAML file. `name` is its name in messages. */
export function parseConfigFile(name: string, content: string): ConfigFile {
  const lines = new LineCounter();
  const document = parseDocument(content, { lineCounter: lines, prettyErrors: false });
  const faults = [...document.errors, ...document.warnings];
  if (faults.length > 0) {
    const problems = faults.map(
      (fault) => `${name}:${lines.linePos(fault.pos[0]).line}: not valid YAML: ${fault.message}`,
    );
    return { settings: new Map(), problems };
  }
  if (document.toJS() === null) return { settings: new Map(), problems: [] };
  if (!isMap(document.contents)) {
    return { settings: new Map(), problems: [`${name}: is not a mapping of options to values.`] };
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
  return settingsOf(document.toJS() as Readonly<Record<string, unknown>>, place);
}

function settingsOf(
  values: Readonly<Record<string, unknown>>,
  place: (path: readonly Step[]) => string,
): ConfigFile {
  const byKey = new Map(optionNames.map((name) => [fileKeyOf(name), name]));
  const settings = new Map<OptionName, Setting>();
  const problems: string[] = [];
  for (const [key, value] of Object.entries(values)) {
    const name = byKey.get(key);
    if (name === undefined) {
      const meant = nearest(key, byKey.keys());
      const hint = meant === undefined ? "" : ` Did you mean "${meant}"?`;
      problems.push(`${place([key])}: this option does not exist.${hint}`);
      continue;
    }
    const origin: Origin = (path = []) => place([key, ...path]);
    settings.set(name, { value, origin });
  }
  return { settings, problems };
}

/** The offset of a node in the document; undefined if unknown. */
function offsetOf(node: unknown): number | undefined {
  if (typeof node !== "object" || node === null || !("range" in node)) return undefined;
  const range: unknown = node.range;
  const offset: unknown = Array.isArray(range) ? range[0] : undefined;
  return typeof offset === "number" ? offset : undefined;
}
