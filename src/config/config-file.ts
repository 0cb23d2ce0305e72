import { nearest } from "./nearest.ts";
import { fileKeyOf, type OptionName, optionNames } from "./options.ts";
import type { Origin, Setting, Settings } from "./setting.ts";
import { parseYamlFile, type YamlMapping } from "./yaml-file.ts";

/** The content of a configuration file. */
export interface ConfigFile {
  readonly settings: Settings;
  readonly problems: readonly string[];
}

/** Parses a YAML file. `name` is its name in messages. */
export function parseConfigFile(name: string, content: string): ConfigFile {
  const { mapping, problems } = parseYamlFile(name, content, "options to values");
  return mapping === undefined ? { settings: new Map(), problems } : settingsOf(mapping);
}

function settingsOf({ values, place }: YamlMapping): ConfigFile {
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
