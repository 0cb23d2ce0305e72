import { mkdtempSync, readdirSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type ChannelCredentials, Client, credentials } from "@grpc/grpc-js";
import { pino } from "pino";
import { describe, expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { Authenticators } from "../../src/identity/authenticators.ts";
import { makeUnixSocket } from "../../src/server/listener/bind.ts";
import type { AuditEntry, ServerOptions, UnixListen } from "../../src/server/server.ts";
import { startServer } from "../../src/server/server.ts";
import { authority, headers, list, resource, serverCertificate } from "./authenticated-calls.ts";
import { ManualTimers } from "./limits/manual-timers.ts";
import { type Served, serveThings } from "./served.ts";
import { TestClient } from "./test-client.ts";

/** A folder for sockets. */
function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "wf-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  return folder;
}

interface OnSocket extends Served {
  readonly path: string;
  /** A client on a connection of its own. */
  connect(channel?: ChannelCredentials): TestClient;
}

async function serveOnSocket(
  options: Partial<ServerOptions> = {},
  listen: Partial<UnixListen> = {},
): Promise<OnSocket> {
  const path = listen.path ?? join(newFolder(), "grpc");
  const served = await serveThings({ server: { ...options, listen: { ...listen, path } } });
  const connect = (channel = credentials.createInsecure()): TestClient => {
    // Own pools, so that clients do not share a connection.
    const channelOptions = { "grpc.use_local_subchannel_pool": 1 };
    const client = new TestClient(new Client(`unix:${path}`, channel, channelOptions));
    onTestFinished(() => client.close());
    return client;
  };
  return { ...served, path, connect };
}

const refused = { resources: new Map(), logger: pino({ level: "silent" }) };

function startAt(path: string): Promise<unknown> {
  return startServer({ ...refused, clock: new ManualTimers(), listen: { path } });
}

describe("A Unix socket", () => {
  test("serves every connection for itself", async () => {
    const { server, connect } = await serveOnSocket({ limits: { maxConnections: 2 } });
    const [watching, idle] = [connect(), connect()];
    const watch = watching.watch({ resource });
    await watch.next();
    await idle.list({ resource });
    expect(server.connections).toBe(2);
    // The idle connection makes room, and not the one with a stream.
    await connect().list({ resource });
    await watching.list({ resource });
    expect(server.connections).toBe(2);
    watch.cancel();
  });

  test("has the permissions 0600, or those that are configured", async () => {
    const modes = [];
    for (const listen of [{}, { mode: 0o660 }]) {
      const { path } = await serveOnSocket({}, listen);
      modes.push((statSync(path).mode & 0o777).toString(8));
      expect(readdirSync(join(path, ".."))).toEqual(["grpc"]);
    }
    expect(modes).toEqual(["600", "660"]);
  });

  test("can't be reached before it has its permissions", async () => {
    const folder = newFolder();
    const path = join(folder, "s");
    const made = await makeUnixSocket({ path }, systemClock, async (temporary) => {
      expect((statSync(join(temporary, "..")).mode & 0o077).toString(8)).toBe("0");
      expect(readdirSync(folder)).not.toContain("s");
      writeFileSync(temporary, "");
    });
    expect(readdirSync(folder)).toEqual(["s"]);
    made.remove();
    made.remove();
    expect(readdirSync(folder)).toEqual([]);
  });

  test("is left where it is if another process has replaced it, and its path has at most 90 bytes", async () => {
    const folder = newFolder();
    const path = join(folder, "s".repeat(90 - Buffer.byteLength(folder) - 1));
    const make = async (temporary: string) => writeFileSync(temporary, "");
    const made = await makeUnixSocket({ path }, systemClock, make);
    writeFileSync(join(folder, "other"), "another's");
    renameSync(join(folder, "other"), path);
    made.remove();
    expect(statSync(path).size).toBe("another's".length);
    await expect(makeUnixSocket({ path: `${path}s` }, systemClock, make)).rejects.toThrow(
      "the path has 91 bytes, and the maximum is 90",
    );
  });

  test("is removed by a shutdown, but not if it is another process's by now", async () => {
    const { server, path, clock, connect } = await serveOnSocket();
    const drained = server.drain(0);
    expect(readdirSync(join(path, ".."))).toEqual([]);
    writeFileSync(path, "another's");
    clock.advance(0);
    await drained;
    expect(readdirSync(join(path, ".."))).toEqual(["grpc"]);
    await expect(connect().list({ resource })).rejects.toMatchObject({
      reason: "UPSTREAM_UNAVAILABLE",
    });
  });

  test("is refused where another process serves, and that one continues", async () => {
    const { path, connect } = await serveOnSocket();
    await expect(startAt(path)).rejects.toThrow("EADDRINUSE");
    await connect().list({ resource });
  });

  test("is refused in place of another file, in a missing folder, and with too long a path", async () => {
    const folder = newFolder();
    writeFileSync(join(folder, "file"), "precious");
    await expect(startAt(join(folder, "file"))).rejects.toThrow("is not a socket");
    await expect(startAt(join(folder, "no", "s"))).rejects.toThrow("ENOENT");
    await expect(startAt(join(folder, "x".repeat(100)))).rejects.toThrow("the maximum is 90");
    expect(readdirSync(folder)).toEqual(["file"]);
  });

  test("replaces a socket on which no process listens", async () => {
    const path = join(newFolder(), "s");
    const listener = createServer();
    await new Promise<void>((resolve) => listener.listen(`${path}-own`, resolve));
    // Node.js removes only the path that it knows.
    renameSync(`${path}-own`, path);
    await new Promise((resolve) => listener.close(resolve));
    expect(statSync(path).isSocket()).toBe(true);
    await serveOnSocket({}, { path });
  });
});

describe("The callers of a Unix socket", () => {
  const certificateNames = ["spiffe", "dns", "cn"] as const;
  const header = headers({ "x-forwarded-client-cert": "URI=spiffe://corp/a" });

  test.each([
    [true, "spiffe://corp/a"],
    [false, "anonymous"],
  ])("forward certificates if that is trusted (%s): %s", async (unix, name) => {
    const entries: AuditEntry[] = [];
    const { connect } = await serveOnSocket({
      authenticators: new Authenticators({
        ...{ certificateNames, now: Date.now },
        // Of a Unix socket, loopback says nothing.
        trustedForwarders: { loopback: true, unix, names: new Set() },
      }),
      audit: { level: "reads", record: (entry) => void entries.push(entry) },
    });
    await list(connect(), header);
    expect(entries).toMatchObject([{ identity: { name }, address: "unix:1" }]);
  });

  test("with TLS are recognised by their certificate", async () => {
    const entries: AuditEntry[] = [];
    const { connect, server } = await serveOnSocket({
      authenticators: new Authenticators({ certificateNames, now: Date.now }),
      tls: { ...serverCertificate, clientCa: authority.cert, clientAuth: "require" },
      audit: { level: "reads", record: (entry) => void entries.push(entry) },
    });
    for (const cn of ["alice", "bob"]) {
      const { cert, key } = await authority.issue({ cn });
      await list(connect(credentials.createSsl(authority.cert, key, cert)));
    }
    expect(server.connections).toBe(2);
    expect(entries).toMatchObject([
      { identity: { name: "alice" }, address: "unix:1" },
      { identity: { name: "bob" }, address: "unix:2" },
    ]);
  });
});
