import type { OptionDefinition } from "./option-definition.ts";
import { definition, flagOf, type OptionName, type OptionValues, optionNames } from "./options.ts";
import { keysOf } from "./resource-settings.ts";
import {
  describeIssue,
  type KnownMapping,
  type Setting,
  type Settings,
  type Step,
} from "./setting.ts";

/** The values of the options. */
export interface ParsedSettings {
  /** Complete if there are no problems. */
  readonly values: OptionValues;
  readonly problems: readonly string[];
}

/** Parses the settings by the options' types, and adds the defaults. */
export function parseSettings(settings: Settings): ParsedSettings {
  const problems: string[] = [];
  const values: Record<string, unknown> = {};
  for (const name of optionNames) {
    const option = definition(name);
    const setting = settings.get(name) ?? defaultSetting(name, option);
    if (option.list !== undefined) {
      values[name] = parseList(option, setting, problems);
    } else if (setting !== undefined) {
      values[name] = parseOne(option, setting.value, setting, [], problems);
    }
  }
  // Each value was parsed by the schema that OptionValues derives its type from.
  return { values: values as OptionValues, problems };
}

function defaultSetting(name: OptionName, option: OptionDefinition): Setting | undefined {
  if (option.default === undefined) return undefined;
  return { value: option.default, origin: () => `the default of ${flagOf(name)}` };
}

function parseList(
  option: OptionDefinition,
  setting: Setting | undefined,
  problems: string[],
): readonly unknown[] {
  if (setting === undefined) return [];
  const { value } = setting;
  if (!Array.isArray(value)) {
    return elements(value, option).map((element) =>
      parseOne(option, element, setting, [], problems),
    );
  }
  if (value.length === 0) problems.push(`${setting.origin()}: the list is empty.`);
  return value.flatMap((entry: unknown, index) =>
    (option.list === "commas" ? elements(entry, option) : [entry]).map((element) =>
      parseOne(option, element, setting, [index], problems),
    ),
  );
}

function elements(value: unknown, option: OptionDefinition): readonly unknown[] {
  if (typeof value !== "string" || option.list === undefined) return [value];
  return value.split(",").map((element) => element.trim());
}

function parseOne(
  option: OptionDefinition,
  value: unknown,
  setting: Setting,
  path: readonly Step[],
  problems: string[],
): unknown {
  const result = option.schema.safeParse(value, { reportInput: true });
  if (result.success) return result.data;
  const place = (inside: readonly Step[]): string => setting.origin([...path, ...inside]);
  const shown = option.secret === true ? "the value" : undefined;
  problems.push(
    ...result.error.issues.flatMap((issue) => describeIssue(issue, place, mappingAt, shown)),
  );
  return undefined;
}

/** Resources and event windows are the only mappings. */
function mappingAt(path: readonly Step[]): KnownMapping {
  return path.at(-1) === "event-window"
    ? { what: "an event-window", keys: keysOf("event-window") }
    : { what: "a resource", keys: keysOf("resource") };
}
