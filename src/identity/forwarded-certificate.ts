import { ownText } from "../base/text-memory.ts";
import { type Identity, isName, unauthenticated } from "./identity.ts";

/** Peers whose `x-forwarded-client-cert` is believed. */
export interface TrustedForwarders {
  /** Connections from this machine, such as of a sidecar. */
  readonly loopback: boolean;
  /** Connections to the Unix socket that the server listens on. Default: false. */
  readonly unix?: boolean;
  /** Names of client certificates. */
  readonly names: ReadonlySet<string>;
}

/**
 * The identity that a trusted proxy forwards in `x-forwarded-client-cert`: the URI of the last element, which is the
 * certificate of the proxy's own client. `expiresAt` is when the proxy may no longer forward, since its own certificate
 * expires; undefined: never. Throws UNAUTHENTICATED if the header is malformed, or if that element has no URI or several
 * different ones.
 *
 * https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_conn_man/headers#x-forwarded-client-cert
 */
export function forwardedIdentity(header: string, expiresAt: number | undefined): Identity {
  const last = parseForwardedCertificates(header)?.at(-1);
  if (last === undefined) throw refused("is malformed");
  const name = uriOf(last);
  if (name === undefined) throw refused("does not have exactly one URI in its last element");
  // Without the header, which a stream would keep alive.
  return { name: ownText(name), groups: [], source: "forwarded-certificate", expiresAt };
}

/** The name in the header; undefined if `forwardedIdentity` throws. */
export function forwardedName(header: string): string | undefined {
  const last = parseForwardedCertificates(header)?.at(-1);
  return last && uriOf(last);
}

/** The URI of an element; undefined if there is not exactly one. */
function uriOf(element: readonly Pair[]): string | undefined {
  const uris = element.filter(({ key }) => key.toLowerCase() === "uri");
  const [name] = new Set(uris.map(({ value }) => value));
  return uris.every(({ value }) => value === name) && isName(name) ? name : undefined;
}

interface Pair {
  readonly key: string;
  readonly value: string;
}

/**
 * `KEY=VALUE`, where a value with other characters is in quotes, in which a quote is `\"`. Each character has one way to
 * match, so a hostile header takes linear time.
 */
const pair = /\s*([A-Za-z]+)=(?:"((?:[^"\\]|\\.)*)"|([^",;\s]*))\s*(,|;|$)/y;

/**
 * Parses the header: elements separated by commas, each of pairs separated by semicolons. Undefined if it is malformed.
 */
export function parseForwardedCertificates(
  header: string,
): readonly (readonly Pair[])[] | undefined {
  const elements: Pair[][] = [];
  let element: Pair[] = [];
  let end = ",";
  pair.lastIndex = 0;
  while (end !== "") {
    const match = pair.exec(header);
    if (match === null) return undefined;
    const [, key = "", quoted, plain = "", separator = ""] = match;
    element.push({ key, value: quoted?.replaceAll(/\\(.)/g, "$1") ?? plain });
    end = separator;
    if (end === ";") continue;
    elements.push(element);
    element = [];
  }
  return elements;
}

function refused(problem: string) {
  return unauthenticated(
    `The header x-forwarded-client-cert of a trusted proxy ${problem}.`,
    "Configure the proxy to set it to the URI of its client's certificate.",
  );
}
