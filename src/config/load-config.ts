import { assembleConfig } from "./assemble-config.ts";
import type { Config } from "./config.ts";
import { didYouMean, nearest } from "./nearest.ts";
import {
  definition,
  fileKeyOf,
  flagOf,
  type OptionName,
  optionNames,
  variableOf,
  variablePrefix,
} from "./options.ts";
import { parseSettings } from "./parse-settings.ts";
import { ConfigError, type Origin, type Setting, type Settings, textOrigin } from "./setting.ts";
import { parseYamlFile, type YamlMapping } from "./yaml-file.ts";

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
export interface ConfigSnapshot {
  readonly flags: ConfigSources["flags"];
  readonly env: ConfigSources["env"];
  readonly defaults: ConfigSources["flags"];
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
  const environment = readEnvironment(sources.env);
  const file = readConfigFile(sources);
  const flags = readFlags(sources.flags);
  const defaults = readFlags(sources.defaults ?? {});
  const settings = new Map([...defaults, ...file.settings, ...environment.settings, ...flags]);
  const { values, problems } = parseSettings(settings);
  const all = [...environment.problems, ...file.problems, ...problems];
  if (all.length > 0) throw new ConfigError(all);
  return assembleConfig(values, settings, sources.readFile);
}

/** The options that a source sets. */
interface ReadSettings {
  readonly settings: Settings;
  readonly problems: readonly string[];
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

function readConfigFile({ flags, env, readFile }: ConfigSources): ReadSettings {
  const flag = flags["config"]?.at(-1);
  const path = flag ?? env[configVariable];
  if (path === undefined || (flag === undefined && path === "")) {
    return { settings: new Map(), problems: [] };
  }
  let content: Buffer;
  try {
    content = readFile(path);
  } catch (error) {
    const source = flag === undefined ? configVariable : flagOf("config");
    const problem = `${source}: ${JSON.stringify(path)} can't be read: ${String(error)}.`;
    return { settings: new Map(), problems: [problem] };
  }
  return parseConfigFile(path, content.toString("utf8"));
}

/** Parses a YAML file. `name` is its name in messages. */
function parseConfigFile(name: string, content: string): ReadSettings {
  const { mapping, problems } = parseYamlFile(name, content, "options to values");
  return mapping === undefined ? { settings: new Map(), problems } : settingsOf(mapping);
}

function settingsOf({ values, place }: YamlMapping): ReadSettings {
  const byKey = new Map(optionNames.map((name) => [fileKeyOf(name), name]));
  const settings = new Map<OptionName, Setting>();
  const problems: string[] = [];
  for (const [key, value] of Object.entries(values)) {
    const name = byKey.get(key);
    if (name === undefined) {
      const hint = didYouMean(key, byKey.keys());
      problems.push(`${place([key])}: this option does not exist.${hint}`);
      continue;
    }
    const origin: Origin = (path = []) => place([key, ...path]);
    settings.set(name, { value, origin });
  }
  return { settings, problems };
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
function readEnvironment(env: Readonly<Record<string, string | undefined>>): ReadSettings {
  const byVariable = new Map(optionNames.map((name) => [variableOf(name), name]));
  const known = [...byVariable.keys(), configVariable].map(afterPrefix);
  const settings = new Map<OptionName, Setting>();
  const problems: string[] = [];
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
  return { settings, problems };
}

function afterPrefix(variable: string): string {
  return variable.slice(variablePrefix.length);
}
