import { connect, type Socket } from "node:net";
import { describe, expect, onTestFinished, test } from "vitest";
import { connectionsWithin, openFileLimit } from "../../../src/base/process-limits.ts";
import { warnOfFewConnections } from "../../../src/cli/serve/client-facing.ts";
import { listWatchService } from "../../../src/wire/services.ts";
import { RawConnection } from "../../server/http2/raw-connection.ts";
import { startServe } from "./serve-process.ts";

const { List } = listWatchService;

/** The file of the kernel, with these limits of open files. */
const limits = (soft: string, hard: string): string =>
  `Limit                     Soft Limit           Hard Limit           Units
Max processes             1                    2                    processes
Max open files            ${soft.padEnd(21)}${hard.padEnd(21)}files
`;

describe("The limit of open files", () => {
  test("is the hard one, to which Node.js raises the other", () => {
    expect(openFileLimit(limits("1024", "4096"))).toBe(4_096);
  });

  test("is undefined for a process without one, and where it is not known", () => {
    expect(openFileLimit(limits("1024", "unlimited"))).toBeUndefined();
    expect(openFileLimit("")).toBeUndefined();
  });

  test.each([
    ["that is large lets all connections be", 65_536, 20_000],
    ["that is just large enough", 20_640, 20_000],
    ["below that leaves a reserve of 640", 20_639, 19_999],
    ["that is usual", 1_024, 512],
    ["that is small is shared by halves", 100, 50],
  ])("%s", (_what, limit, expected) => {
    expect(connectionsWithin(limit, 20_000)).toBe(expected);
  });
});

describe("A limit of open files below --max-connections is logged", () => {
  test.each([
    ["if a large part can't be accepted", 18_639, 20_000, 17_999],
    ["but not if it is just too low for the reserve as well", 20_000, 20_000, undefined],
    ["but not if at most a tenth can't be accepted", 18_640, 20_000, undefined],
    ["if half of it is reserved, for a low --max-connections too", 400, 300, 200],
    ["but not if all can be accepted", 1_024, 300, undefined],
  ])("%s", (_when, openFiles, maxConnections, acceptedConnections) => {
    const lines: unknown[] = [];
    warnOfFewConnections(maxConnections, { warn: (line: unknown) => lines.push(line) }, openFiles);
    const line = { openFiles, maxConnections, acceptedConnections };
    expect(lines).toEqual(acceptedConnections === undefined ? [] : [line]);
  });
});

test("The idle connections of one host, of which there are more than open files, keep out neither probes nor others", async () => {
  const { process, grpc, admin } = await startServe(["--log-format", "json"], {}, "-n 300");
  onTestFinished(async () => process[Symbol.asyncDispose]());
  const line = /\{[^\n]*the limit of open files is too low for --max-connections[^\n]*\}/;
  const [found] = await process.printed(line);
  expect(JSON.parse(found)).toMatchObject({
    ...{ level: "warn", openFiles: 300, maxConnections: 20_000, acceptedConnections: 150 },
  });
  const port = Number(grpc.split(":").at(-1));
  const sockets: Socket[] = [];
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
  });
  await Promise.all(
    Array.from({ length: 600 }, async () => {
      const socket = connect(port, "127.0.0.1").on("error", () => {});
      sockets.push(socket);
      await new Promise<void>((resolve) => socket.once("connect", resolve).once("close", resolve));
    }),
  );
  for (let i = 0; i < 5; i++) {
    const signal = AbortSignal.timeout(60_000);
    const probe = await fetch(`${admin}/livez`, { signal, headers: { connection: "close" } });
    expect(probe.status).toBe(200);
    const other = new RawConnection(port, undefined, "127.0.0.2");
    const call = other.call(List.path, List.requestSerialize({ resource: "default" }));
    expect((await call.drain().ended).code).toBe(0);
    other.session.destroy();
  }
});
