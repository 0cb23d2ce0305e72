import { readFile } from "node:fs/promises";
import { invalidRequest, messageOf, WatchFanoutError } from "../../base/errors.ts";
import type { ConnectOptions } from "../../client/calls/options.ts";
import type { Token } from "../../client/calls/token-source.ts";
import { type Client, connect } from "../../client/connect.ts";
import type { ClientTls, Pem } from "../../client/transport/client-certificates.ts";
import { type CommandIo, Output, reportFailure, say } from "../output/command-io.ts";
import type { ClientOptions } from "./client-options.ts";

/** What a command uses while it runs. */
export interface Session {
  readonly client: Client;
  readonly output: Output;
  readonly io: CommandIo;
  /** Prints a message to stderr. */
  say(message: string): void;
}

/** Connects, runs `work`, and turns its error into a message and the exit code. */
export async function runSession(
  io: CommandIo,
  options: ClientOptions,
  work: (session: Session) => Promise<void>,
): Promise<void> {
  // Keeps the process alive: the clock's timers do not, and a watch that waits to reconnect has nothing else.
  const alive = setInterval(() => {}, 2 ** 30);
  let client: Client | undefined;
  try {
    client = connect(await connectOptions(options));
    const output = new Output(io.stdout);
    await work({ client, output, io, say: (message) => say(io, message) });
    await output.flush();
  } catch (error) {
    reportFailure(io, withFlags(error));
  } finally {
    clearInterval(alive);
    client?.close();
  }
}

/** Runs `work` with a signal that is aborted at an interrupt, which `interrupted` is alone, and when the output has failed. */
export async function untilInterrupted(
  { io, output }: Session,
  work: (signal: AbortSignal, interrupted: AbortSignal) => Promise<void>,
): Promise<void> {
  const stopping = new AbortController();
  const stopListening = io.onInterrupt(() => stopping.abort());
  try {
    await work(AbortSignal.any([stopping.signal, output.failed]), stopping.signal);
  } finally {
    stopListening();
  }
}

/** How to connect to the service of the options. Rejects with INVALID_REQUEST for TLS or a token that can't be used. */
export async function connectOptions(options: ClientOptions): Promise<ConnectOptions> {
  return {
    address: options.address,
    tls: await readTls(options),
    token: tokenOf(options),
    timeoutMs: options.timeout,
    // Each server is tried once. A user at a terminal can repeat the command.
    maxAttempts: options.address.length,
  };
}

/** What the service calls by the names of its contract, as a user types it. */
const asTyped: readonly (readonly [pattern: RegExp, text: string])[] = [
  [/ask for VIEW_KEYS or VIEW_FULL/i, "Use --keys-only, or leave it out"],
  [/ask for VIEW_KEYS/, "use --keys-only"],
  [/VIEW_ATTRIBUTES/, "--attributes"],
];

/** An error about the view, with the names of flags in its message. In others such a name is the user's, as of a key. */
function withFlags(error: unknown): unknown {
  if (!(error instanceof WatchFanoutError && error.field === "view")) return error;
  const message = asTyped.reduce((text, [name, flag]) => text.replace(name, flag), error.message);
  return new WatchFanoutError(error.reason, message, { cause: error });
}

/** A token has no flag, since other users of the machine can see flags. */
function tokenOf({ bearerTokenFile: file, bearerToken }: ClientOptions): Token | undefined {
  const token = process.env["WATCH_FANOUT_BEARER_TOKEN"] ?? "";
  if (token !== "" && file !== undefined) {
    throw invalidRequest(
      "token",
      "--bearer-token-file and WATCH_FANOUT_BEARER_TOKEN are both given; use one of them.",
    );
  }
  if (file !== undefined) return { file };
  return token === "" ? bearerToken : token;
}

async function readTls(options: ClientOptions): Promise<ClientTls | undefined> {
  const { tls, tlsCa, tlsClientCert, tlsClientKey, tlsServerName } = options;
  if ((tlsClientCert === undefined) !== (tlsClientKey === undefined)) {
    throw invalidRequest(
      "tls",
      "--tls-client-cert and --tls-client-key need each other: give both or neither.",
    );
  }
  const given = [tlsCa, tlsClientCert, tlsClientKey, tlsServerName].some(
    (option) => option !== undefined,
  );
  if (tls !== true && !given) return undefined;
  return {
    ca: await readPem("--tls-ca", tlsCa),
    cert: await readPem("--tls-client-cert", tlsClientCert),
    key: await readPem("--tls-client-key", tlsClientKey),
    serverName: tlsServerName,
  };
}

/** The client reads the file again as it changes. An error at first names the flag. */
async function readPem(flag: string, path: string | undefined): Promise<Pem | undefined> {
  if (path === undefined) return undefined;
  try {
    await readFile(path);
    return { file: path };
  } catch (error) {
    throw invalidRequest("tls", `${flag} can't be read: ${messageOf(error)}.`);
  }
}
