import type { z } from "zod";
import { didYouMean } from "./nearest.ts";
import type { OptionDefinition } from "./option-definition.ts";
import { definition, flagOf, type OptionName, type OptionValues, optionNames } from "./options.ts";
import { keysOf } from "./resource-settings.ts";
import type { Setting, Settings, Step } from "./setting.ts";
import { showValue } from "./setting.ts";

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
  for (const issue of result.error.issues) {
    const inside = issue.path.filter((step) => typeof step !== "symbol");
    const place = setting.origin([...path, ...inside]);
    problems.push(
      ...(issue.code === "unrecognized_keys"
        ? unknownKeys(issue, (key) => setting.origin([...path, ...inside, key]))
        : [describe(issue, place, option.secret === true)]),
    );
  }
  return undefined;
}

/** Turns an issue of zod into a sentence. */
function describe(issue: z.core.$ZodIssue, place: string, isSecret: boolean): string {
  if (issue.input === undefined) return `${place}: is missing.`;
  return `${place}: ${isSecret ? "the value" : showValue(issue.input)} ${issue.message}.`;
}

/** Problems of unknown keys. Resources and event windows are the only mappings. */
function unknownKeys(
  issue: z.core.$ZodIssueUnrecognizedKeys,
  place: (key: string) => string,
): readonly string[] {
  const owner = issue.path.at(-1) === "event-window" ? "event-window" : "resource";
  const known = keysOf(owner);
  return issue.keys.map((key) => {
    const what = owner === "resource" ? "a resource" : "an event-window";
    const problem = `${what} has no such key. Its keys are ${known.join(", ")}.`;
    return `${place(key)}: ${problem}${didYouMean(key, known)}`;
  });
}
