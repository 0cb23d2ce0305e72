import { assembleConfig } from "./assemble-config.ts";
import type { Config } from "./config.ts";
import type { OptionDefinition } from "./option-definition.ts";
import {
  definition,
  fileKeyOf,
  flagOf,
  type OptionName,
  type OptionValues,
  optionNames,
  variableOf,
  variablePrefix,
} from "./options.ts";
import { keysOf } from "./resource-settings.ts";
import {
  ConfigError,
  describeIssue,
  didYouMean,
  type KnownMapping,
  nearest,
  type Origin,
  type Setting,
  type Settings,
  type Step,
  textOrigin,
} from "./setting.ts";
import { parseYamlFile } from "./yaml-file.ts";

/** The sources of a configuration. */
interface ConfigSources {
  /** The values of each flag, in order, as they were typed. */
  readonly flags: Readonly<Record<string, readonly string[] | undefined>>;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** What a command has instead of an option's default, as flags. */
  readonly defaults?: ConfigSources["flags"];
  /** Throws the errors of `readFileSync`. */
  readonly readFile: (path: string) => Buffer;
}

/** The sources of a configuration as they were read, from which another process can load the same. */
export interface ConfigSnapshot extends Required<Omit<ConfigSources, "readFile">> {
  /** The contents of all files that it names, by path. */
  readonly files: Map<string, Buffer>;
}

/** A configuration, and what it was loaded from. */
export interface LoadedConfig {
  readonly config: Config;
  readonly snapshot: ConfigSnapshot;
}

/** Loads the configuration as `loadConfig` does, and returns what it was loaded from as well. */
export function loadWithSnapshot(sources: ConfigSources): LoadedConfig {
  const files = new Map<string, Buffer>();
  const config = loadConfig({
    ...sources,
    readFile: (path) => {
      const content = sources.readFile(path);
      files.set(path, content);
      return content;
    },
  });
  const own = Object.entries(sources.env).filter(([name]) => name.startsWith(variablePrefix));
  const { flags, defaults = {} } = sources;
  return { config, snapshot: { flags, env: Object.fromEntries(own), defaults, files } };
}

/** Loads the configuration of a snapshot. Throws a ConfigError if it is not one that was loaded before. */
export function loadSnapshot({ flags, env, defaults, files }: ConfigSnapshot): Config {
  return loadConfig({
    ...{ flags, env, defaults },
    readFile: (path) => {
      const content = files.get(path);
      if (content === undefined) throw new Error("it is not part of the snapshot");
      return content;
    },
  });
}

/**
 * Loads the configuration. A flag takes precedence over a variable, a variable over the file, and the file over the
 * default. Throws a ConfigError with all problems.
 */
export function loadConfig(sources: ConfigSources): Config {
  const problems: string[] = [];
  const environment = readEnvironment(sources.env, problems);
  const file = readConfigFile(sources, problems);
  const flags = readFlags(sources.flags);
  const defaults = readFlags(sources.defaults ?? {});
  const settings = new Map([...defaults, ...file, ...environment, ...flags]);
  const values = parseSettings(settings, problems);
  if (problems.length > 0) throw new ConfigError(problems);
  return assembleConfig(values, settings, sources.readFile);
}

function readFlags(flags: ConfigSources["flags"]): Settings {
  const settings = new Map<OptionName, Setting>();
  for (const name of optionNames) {
    const given = flags[name];
    if (given === undefined) continue;
    // The last value of a flag that is not a list applies, so that a script can append an override.
    const value = definition(name).list === undefined ? given.at(-1) : given;
    settings.set(name, { value, origin: textOrigin(flagOf(name)) });
  }
  return settings;
}

/** Reads the options from a YAML file, if one is named. */
function readConfigFile({ flags, env, readFile }: ConfigSources, problems: string[]): Settings {
  const settings = new Map<OptionName, Setting>();
  const flag = flags["config"]?.at(-1);
  const path = flag ?? env[configVariable];
  if (path === undefined || (flag === undefined && path === "")) return settings;
  let content: Buffer;
  try {
    content = readFile(path);
  } catch (error) {
    const source = flag === undefined ? configVariable : flagOf("config");
    problems.push(`${source}: ${JSON.stringify(path)} can't be read: ${String(error)}.`);
    return settings;
  }
  const file = parseYamlFile(path, content.toString("utf8"), "options to values");
  problems.push(...file.problems);
  const byKey = new Map(optionNames.map((name) => [fileKeyOf(name), name]));
  for (const [key, value] of Object.entries(file.mapping?.values ?? {})) {
    const name = byKey.get(key);
    const origin: Origin = (inside = []) => file.mapping?.place([key, ...inside]) ?? path;
    if (name !== undefined) settings.set(name, { value, origin });
    else problems.push(`${origin()}: this option does not exist.${didYouMean(key, byKey.keys())}`);
  }
  return settings;
}

/** The variable that names the configuration file. */
export const configVariable = variableOf("config");

/** Variables of the client commands and of `top`, which `serve` ignores. */
const clientVariables: readonly string[] = [
  "address",
  "admin-url",
  "bearer-token",
  "bearer-token-file",
  "output",
  "timeout",
  "tls-ca",
  "tls-client-cert",
  "tls-client-key",
  "tls-server-name",
].map(variableOf);

/**
 * Variables that Kubernetes sets in every pod of a namespace with a Service whose name begins with `watch-fanout`, such as
 * `WATCH_FANOUT_SERVICE_HOST` and `WATCH_FANOUT_PORT_50051_TCP_ADDR`
 * (https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables).
 */
const serviceLink =
  /_(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT(?:_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)?)$/;

/**
 * Reads the options from environment variables. An empty variable counts as absent, since templates render absent values
 * as empty text.
 */
function readEnvironment(env: ConfigSources["env"], problems: string[]): Settings {
  const byVariable = new Map(optionNames.map((name) => [variableOf(name), name]));
  const known = [...byVariable.keys(), configVariable].map(afterPrefix);
  const settings = new Map<OptionName, Setting>();
  for (const [variable, value] of Object.entries(env)) {
    if (!variable.startsWith(variablePrefix) || value === undefined) continue;
    const name = byVariable.get(variable);
    if (name !== undefined) {
      if (value !== "") settings.set(name, { value, origin: textOrigin(variable) });
      continue;
    }
    if (variable === configVariable || clientVariables.includes(variable)) continue;
    if (serviceLink.test(variable)) continue;
    const meant = nearest(afterPrefix(variable), known);
    const hint = meant === undefined ? "" : ` Did you mean ${variablePrefix}${meant}?`;
    problems.push(`${variable}: this option does not exist.${hint}`);
  }
  return settings;
}

function afterPrefix(variable: string): string {
  return variable.slice(variablePrefix.length);
}

/** The values of the options by their types, with the defaults. Complete if there are no problems. */
function parseSettings(settings: Settings, problems: string[]): OptionValues {
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
  return values as OptionValues;
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
