import { readFile } from "node:fs/promises";
import { get as httpGet, type IncomingMessage } from "node:http";
import { get as httpsGet } from "node:https";
import { type Command, InvalidArgumentError, Option } from "commander";
import { connectionCause, type TlsSettings } from "../../base/connection-cause.ts";
import { invalidRequest, messageOf, WatchFanoutError } from "../../base/errors.ts";

/** Where the admin port of a service is, and how to reach it. */
export interface AdminPortOptions {
  /** Such as http://127.0.0.1:8080. */
  readonly url: URL;
  readonly tlsCa?: string | undefined;
  readonly bearerTokenFile?: string | undefined;
}

/** Adds the options of a command that asks the admin port. */
export function addAdminPortOptions(command: Command): Command {
  return command
    .addOption(
      new Option("--url <url>", "admin port of the service")
        .env("WATCH_FANOUT_ADMIN_URL")
        .argParser(adminUrl)
        .default(new URL("http://127.0.0.1:8080"), "http://127.0.0.1:8080"),
    )
    .addOption(new Option("--tls-ca <file>", "authorities to trust, in PEM, for https"))
    .addOption(
      new Option(
        "--bearer-token-file <file>",
        "token of --admin-token-file (or the variable WATCH_FANOUT_BEARER_TOKEN)",
      ),
    );
}

function adminUrl(text: string): URL {
  const url = URL.parse(text);
  if (url !== null && /^https?:$/.test(url.protocol)) return url;
  throw new InvalidArgumentError("It must be a URL, such as http://127.0.0.1:8080.");
}

const tlsSettings: TlsSettings = {
  on: "write https:// in --url, and set --tls-ca for a private authority",
  off: "write http:// in --url",
  ca: "--tls-ca",
  cert: undefined,
  serverName: undefined,
};

/**
 * Requests a page, and returns what `read` makes of its response. Rejects with a WatchFanoutError whose message says what to
 * do if the port can't be reached or wants a token.
 */
export async function requestAdminPort<T>(
  { url, tlsCa, bearerTokenFile }: AdminPortOptions,
  page: string,
  signal: AbortSignal,
  read: (response: IncomingMessage) => Promise<T>,
): Promise<T> {
  const token =
    process.env["WATCH_FANOUT_BEARER_TOKEN"] || (await contentOf(bearerTokenFile, signal));
  const options = {
    headers: token === undefined ? {} : { authorization: `Bearer ${token.toString().trim()}` },
    ca: await contentOf(tlsCa, signal),
    signal,
  };
  const isTls = url.protocol === "https:";
  const get: typeof httpsGet = isTls ? httpsGet : httpGet;
  try {
    return await new Promise<T>((resolve, reject) => {
      // The error of the request comes first if it was aborted. That of its response does not have the reason.
      get(new URL(page, url), options, (response) => {
        if (response.statusCode !== 401) read(response).then(resolve, reject);
        else {
          response.resume();
          const advice = "Name the file with the token by --bearer-token-file.";
          reject(new WatchFanoutError("UNAUTHENTICATED", `${url.origin} needs a token. ${advice}`));
        }
      }).on("error", reject);
    });
  } catch (error) {
    if (error instanceof WatchFanoutError) throw error;
    const { text, advice } = connectionCause(messageOf(error), tlsSettings, isTls);
    throw new WatchFanoutError(
      "UPSTREAM_UNAVAILABLE",
      `${url.origin} does not respond: ${text}. ${advice ?? "--url names the admin port of the service."}`,
      { cause: error },
    );
  }
}

async function contentOf(
  path: string | undefined,
  signal: AbortSignal,
): Promise<Buffer | undefined> {
  if (path === undefined) return undefined;
  try {
    return await readFile(path, { signal });
  } catch (error) {
    throw invalidRequest("file", `The file ${path} can't be read: ${messageOf(error)}`);
  }
}
