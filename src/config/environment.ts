import { nearest } from "./nearest.ts";
import { type OptionName, optionNames, variableOf, variablePrefix } from "./options.ts";
import { type Setting, type Settings, textOrigin } from "./setting.ts";

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

/** The options that environment variables set. */
interface Environment {
  readonly settings: Settings;
  readonly problems: readonly string[];
}

/**
 * Reads the options from environment variables. An empty variable counts as absent, since templates render absent values
 * as empty text.
 */
export function readEnvironment(env: Readonly<Record<string, string | undefined>>): Environment {
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
