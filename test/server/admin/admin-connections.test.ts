import { once } from "node:events";
import { createServer } from "node:http";
import { type AddressInfo, connect, type Socket } from "node:net";
import { pino } from "pino";
import { beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { type RunningAdmin, startAdmin } from "../../../src/server/admin/admin.ts";
import { PipelinedRequests } from "../../../src/server/admin/admin-connections.ts";

let admin: RunningAdmin;
let renderings = 0;

beforeEach(async () => {
  admin = await startAdmin({
    listen: { host: "127.0.0.1", port: 0 },
    readiness: () => [],
    metrics: {
      contentType: "text/plain; version=0.0.4",
      render: async () => {
        renderings++;
        return "x".repeat(1_000_000);
      },
    },
    logger: pino({ level: "silent" }),
  });
  return () => admin.close();
});

/** A connection that has sent `text`, and reads nothing. */
async function open(text: string = "", port: number = admin.port): Promise<Socket> {
  const socket = connect(port, "127.0.0.1");
  onTestFinished(() => void socket.destroy());
  socket.on("error", () => {});
  await once(socket, "connect");
  if (text !== "") socket.write(text);
  return socket;
}

/** The first line of the response; empty if the connection is closed. */
async function ask(socket: Socket): Promise<string> {
  socket.write("GET /livez HTTP/1.1\r\nhost: x\r\n\r\n");
  let answer = "";
  const read = (chunk: Buffer): void => {
    answer += chunk.toString("latin1");
  };
  socket.on("data", read);
  await new Promise<void>((resolve) => {
    socket.on("data", () => answer.endsWith("ok\n") && resolve());
    socket.once("close", () => resolve());
    if (socket.closed) resolve();
  });
  socket.off("data", read);
  return answer.split("\r\n")[0] ?? "";
}

const alive = "HTTP/1.1 200 OK";

describe("A probe gets a response beside connections", () => {
  test.each([
    ["64 that send nothing", 64, ""],
    ["1,000 that send nothing", 1_000, ""],
    ["1,000 with an incomplete request", 1_000, "GET /livez HTTP/1.1\r\nhost:"],
    ["1,000 that are kept alive", 1_000, "GET /livez HTTP/1.1\r\nhost: x\r\n\r\n"],
    [
      "1,000 without their body",
      1_000,
      "GET /livez HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n",
    ],
  ])("%s", async (_, count, text) => {
    const sockets = await Promise.all(Array.from({ length: count }, () => open(text)));
    expect(await ask(await open())).toBe(alive);
    // A probe that arrives at once with many connections.
    const crowd = Array.from({ length: 200 }, () => open(text));
    const probe = open().then(ask);
    crowd.push(...Array.from({ length: 200 }, () => open(text)));
    expect(await probe).toBe(alive);
    sockets.push(...(await Promise.all(crowd)));
  });
});

test("Above the bound, the connections with the oldest last request are closed", async () => {
  const asking = await open();
  expect(await ask(asking)).toBe(alive);
  for (let rounds = 0; rounds < 4; rounds++) {
    await Promise.all(Array.from({ length: 200 }, () => open()));
    // Connections are accepted in order: once this one is accepted, all are.
    expect(await ask(await open())).toBe(alive);
    expect(await ask(asking)).toBe(alive);
  }
});

describe("Requests that one connection sends at once", () => {
  const scrape = "GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n";

  test("share one rendering of the metrics", async () => {
    const socket = await open();
    renderings = 0;
    let received = 0;
    socket.on("data", (chunk) => {
      received += chunk.length;
    });
    socket.write(scrape.repeat(4));
    while (received < 4_000_000) await once(socket, "data");
    expect(renderings).toBe(1);
    expect(await ask(socket)).toBe(alive);
  });

  test("close it if it has five without their response", async () => {
    const socket = await open(scrape.repeat(1_000));
    socket.resume();
    await once(socket, "close");
    expect(socket.bytesRead).toBeLessThan(6_000_000);
    expect(await ask(await open())).toBe(alive);
  });
});

test("Responses that are not accepted are bounded in bytes: the connections that hold most are closed", async () => {
  // Far more than the operating system takes of a response that is not read. Its pages are never touched.
  const body = Buffer.alloc(200_000_000);
  const requests = new PipelinedRequests(900_000_000);
  const server = createServer((request, response) => {
    if (!requests.add(request.socket, response) || !requests.hold(response, body.length)) return;
    response.writeHead(200, { "content-length": body.length }).end(body);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const get = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
  // It holds two responses, one behind the other. The others hold one each.
  const greedy = await open(get.repeat(2), port);
  await once(greedy, "readable");
  const modest: Socket[] = [];
  for (let i = 0; i < 2; i++) {
    const socket = await open(get, port);
    await once(socket, "readable");
    modest.push(socket);
  }
  expect(requests.unacceptedBytes).toBe(800_000_000);
  const another = await open(get, port);
  await once(another, "readable");
  await expect.poll(() => requests.unacceptedBytes).toBe(600_000_000);
  greedy.resume();
  await once(greedy, "close");
  expect([...modest, another].map(({ destroyed }) => destroyed)).toEqual([false, false, false]);
  for (const socket of [...modest, another]) socket.destroy();
  await expect.poll(() => requests.unacceptedBytes).toBe(0);
});
