import type { IncomingMessage } from "node:http";
import { isIP } from "node:net";
import { isLocalHost } from "../../identity/peer.ts";
import type { StaticTokens } from "../../identity/token-file.ts";
import type { Http1Page } from "../listener/http1.ts";

/** What access to the admin port depends on. */
export interface AccessOptions {
  readonly listen: { readonly host: string; readonly port: number };
  /** What a request needs for more than the status of `/livez` and `/readyz`. Undefined: no token is needed. */
  readonly tokens?: Pick<StaticTokens, "find"> | undefined;
}

/** What refuses a request for more than the status of probes; undefined: it may be answered. */
export function accessRefusal(
  request: IncomingMessage,
  options: AccessOptions,
  isOfBrowsers: boolean,
): Http1Page | undefined {
  if (!hasToken(request, options)) {
    // With Basic, browsers ask for a password, and send it with all requests of the page.
    const headers = { "www-authenticate": isOfBrowsers ? "Basic realm=watch-fanout" : "Bearer" };
    return { status: 401, body: "Send a token of --admin-token-file.\n", headers };
  }
  if (!mayBeRebound(request, options)) return undefined;
  const body =
    "Use the address of this port, or localhost, as the host, or set --admin-token-file.\n";
  return { status: 403, body };
}

/** What refuses a request for pages that need a token of a group; undefined: it may be answered. */
export function groupRefusal(
  { headers }: IncomingMessage,
  { tokens }: AccessOptions,
  group: string,
): Http1Page | undefined {
  if (tokens === undefined) return undefined;
  const found = tokens.find(tokenOf(headers.authorization ?? ""));
  if (found?.groups.includes(group) === true) return undefined;
  const body = `The token needs the group ${group}: sha256:HEX NAME,${group} in --admin-token-file.\n`;
  return { status: 403, body };
}

/**
 * Whether a page of another site may have sent the request, from a browser on this machine, by binding its own name to the
 * loopback address (DNS rebinding). Such a request has that name as its host. A token would be unknown to the page.
 */
function mayBeRebound({ headers }: IncomingMessage, { listen, tokens }: AccessOptions): boolean {
  // Browsers always send a host; HTTP/1.0 does not require one.
  if (tokens !== undefined || !isLocalHost(listen.host) || headers.host === undefined) return false;
  const [, name = ""] = /^\[?(.*?)\]?(?::\d*)?$/.exec(headers.host) ?? [];
  return name !== "localhost" && isIP(name) === 0;
}

function hasToken({ headers }: IncomingMessage, { tokens }: AccessOptions): boolean {
  if (tokens === undefined) return true;
  return tokens.find(tokenOf(headers.authorization ?? "")) !== undefined;
}

/** The bearer token, or the password of Basic; empty if there is neither. */
function tokenOf(authorization: string): string {
  const [, token] = /^bearer +([\x21-\x7e]+)$/i.exec(authorization) ?? [];
  if (token !== undefined) return token;
  const [, basic = ""] = /^basic +([a-z0-9+/]+=*)$/i.exec(authorization) ?? [];
  const [, password = ""] = /^[^:]*:(.*)$/.exec(Buffer.from(basic, "base64").toString()) ?? [];
  return password;
}
