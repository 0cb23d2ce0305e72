import { lookup as lookupAddresses } from "node:dns/promises";
import { chmodSync, lstatSync, mkdtempSync, renameSync, rmSync, type Stats } from "node:fs";
import {
  type AddressInfo,
  createConnection,
  createServer,
  isIP,
  type Server,
  type Socket,
} from "node:net";
import { dirname, join, resolve } from "node:path";
import type { Clock } from "../../base/clock.ts";

/** A TCP address to listen on. */
export interface TcpListen {
  readonly host: string;
  readonly port: number;
}

/** Connections that another process accepts, and hands to `RunningServer.accept`. */
export interface HandedListen {
  /** The address where that process accepts them. */
  readonly acceptedAt: TcpListen | UnixListen;
}

/** Maximum number of connections that the kernel holds until they are accepted. It may have a lower bound of its own. */
const backlog = 4_096;

/**
 * Time without a packet after which the operating system probes a connection, in milliseconds. Of one that is pinged it does
 * not. One that ends gracefully can't be pinged any more, and nothing else may be sent on it for hours.
 */
const probeAfterMs = 60_000;

export interface AcceptOptions {
  readonly clock: Clock;
  readonly onConnection: (socket: Socket) => void;
  /** A connection can't be accepted, for example because too many files are open. The next one may be accepted. */
  readonly onError: (error: Error) => void;
  /** Whether nothing is read from the connections, since another process will. Default: no. */
  readonly pauseOnConnect?: boolean;
  /** Finds the addresses of a host name. Default: as the operating system does. */
  readonly lookup?: (host: string) => Promise<readonly { readonly address: string }[]>;
}

/** An address on which connections are accepted. */
export interface Bound {
  /** The port that was bound. 0 for a Unix socket. */
  readonly port: number;
  /** Accepts no more connections, and removes the file of a Unix socket. The accepted ones stay open. Idempotent. */
  close(): void;
}

/**
 * Listens on an address, of a host name on all of its addresses that this machine has. Rejects with the error of Node.js,
 * or with a sentence, if that is not possible: also if one of them is in use, where clients would reach another process.
 */
export async function bind(listen: TcpListen | UnixListen, options: AcceptOptions): Promise<Bound> {
  const servers: Server[] = [];
  try {
    return await ("path" in listen
      ? bindUnix(listen, options, servers)
      : bindTcp(listen, options, servers));
  } catch (error) {
    closeAll(servers);
    throw error;
  }
}

async function bindUnix(
  listen: UnixListen,
  options: AcceptOptions,
  servers: Server[],
): Promise<Bound> {
  const file = await makeUnixSocket(listen, options.clock, async (path) => {
    servers.push(await listenOn({ path }, options));
  });
  return {
    port: 0,
    close: () => {
      // Before another process may take the path.
      file.remove();
      closeAll(servers);
    },
  };
}

async function bindTcp(
  listen: TcpListen,
  options: AcceptOptions,
  servers: Server[],
): Promise<Bound> {
  const failures: unknown[] = [];
  let { port } = listen;
  for (const host of await addressesOf(listen.host, options)) {
    try {
      const server = await listenOn({ host, port }, options);
      servers.push(server);
      // The others get the port that the first one got.
      port = (server.address() as AddressInfo).port;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "EADDRINUSE") throw error;
      failures.push(error);
    }
  }
  if (servers.length === 0) throw failures[0] ?? new Error("unknown host name");
  return { port, close: () => closeAll(servers) };
}

async function addressesOf(
  host: string,
  { lookup = (name) => lookupAddresses(name, { all: true }) }: AcceptOptions,
): Promise<ReadonlySet<string>> {
  if (isIP(host) !== 0) return new Set([host]);
  const found = await lookup(host);
  return new Set(found.map(({ address }) => address));
}

function listenOn(
  address: TcpListen | Pick<UnixListen, "path">,
  { onConnection, onError, pauseOnConnect = false }: AcceptOptions,
): Promise<Server> {
  const probes = { keepAlive: true, keepAliveInitialDelay: probeAfterMs };
  const server = createServer({ pauseOnConnect, noDelay: true, ...probes }, onConnection);
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen({ ...address, backlog }, () => {
      server.removeListener("error", reject);
      server.on("error", onError);
      resolve(server);
    });
  });
}

function closeAll(servers: readonly Server[]): void {
  for (const server of servers) server.close();
}

/** Maximum length of a path, in bytes. Systems allow 103 and more; the socket is made in a folder next to its path. */
const maxPathBytes = 90;

/** How long a process that may still serve on the path can take to accept a connection, in milliseconds. */
const probeMs = 1_000;

const defaultMode = 0o600;

/** A Unix socket to listen on. */
export interface UnixListen {
  /** The path of its file, at most 90 bytes. */
  readonly path: string;
  /** The permissions of its file. Default: 0o600. */
  readonly mode?: number | undefined;
}

/** The file of a Unix socket that the server listens on. */
export interface UnixSocketFile {
  /** Removes the file, unless another process has replaced it. Idempotent. */
  remove(): void;
}

/**
 * Makes a Unix socket at a path: calls `bind` with another path in a folder that only this user can enter, sets the
 * permissions, and moves the socket to its path. So no process can connect before the permissions are set, and a file that
 * a killed process has left is replaced in one step.
 *
 * Rejects with an Error with a sentence if another process serves on the path, if the path is another file or too long, or
 * with the error of the operating system.
 */
export async function makeUnixSocket(
  { path: given, mode = defaultMode }: UnixListen,
  clock: Clock,
  bind: (path: string) => Promise<unknown>,
): Promise<UnixSocketFile> {
  const path = resolve(given);
  const bytes = Buffer.byteLength(path);
  if (bytes > maxPathBytes) {
    throw new Error(`the path has ${bytes} bytes, and the maximum is ${maxPathBytes}`);
  }
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (found !== undefined) await checkStale(path, found, clock);
  const folder = mkdtempSync(join(dirname(path), ".wf-"));
  try {
    const made = join(folder, "s");
    await bind(made);
    chmodSync(made, mode);
    const own = lstatSync(made);
    renameSync(made, path);
    return { remove: () => removeOwn(path, own) };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Rejects unless the file is a socket on which no process listens. */
async function checkStale(path: string, found: Stats, clock: Clock): Promise<void> {
  if (!found.isSocket()) throw new Error("the file exists, and is not a socket");
  const socket = createConnection(path);
  const code = await new Promise<string | undefined>((done) => {
    // A process that does not accept connections in time is alive.
    const timer = clock.setTimeout(() => done("ETIMEDOUT"), probeMs);
    socket.once("connect", () => done(undefined));
    socket.once("error", (error: NodeJS.ErrnoException) => done(error.code));
    socket.once("close", () => timer.cancel());
  });
  socket.destroy();
  if (code === "EACCES") throw new Error("EACCES: another user's process may serve on this socket");
  // ENOENT: that process has just removed it.
  if (code !== "ECONNREFUSED" && code !== "ENOENT") {
    throw new Error("EADDRINUSE: another process serves on this socket");
  }
}

function removeOwn(path: string, own: Stats): void {
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (found?.ino === own.ino && found.dev === own.dev) rmSync(path, { force: true });
}
