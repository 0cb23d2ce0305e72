import { request } from "node:http";
import { connect } from "node:net";
import { pino } from "pino";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import {
  type LogLevelControl,
  type ReadinessCheck,
  type RunningAdmin,
  startAdmin,
} from "../../../src/server/admin/admin.ts";

const logger = pino({ level: "silent" });
let admin: RunningAdmin;
let checks: readonly ReadinessCheck[] = [];
let metricsText: () => Promise<string>;

beforeEach(async () => {
  checks = [];
  metricsText = async () => "some_metric 1\n";
  admin = await startAdmin({
    listen: { host: "127.0.0.1", port: 0 },
    readiness: () => checks,
    metrics: { contentType: "text/plain; version=0.0.4", render: () => metricsText() },
    logger,
    logLevel: changeable(),
  });
});

afterEach(() => admin.close());

function changeable(): LogLevelControl {
  const levels = ["info", "debug"];
  let current = "info";
  const set = (level: string): boolean => {
    if (levels.includes(level)) current = level;
    return levels.includes(level);
  };
  return {
    levels,
    set,
    get current() {
      return current;
    },
  };
}

interface Reply {
  readonly status: number | undefined;
  readonly body: string;
  readonly headers: Readonly<Record<string, unknown>>;
}

function ask(path: string, method: string = "GET", body?: string, host?: string): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const headers = host === undefined ? {} : { host };
    const target = { host: admin.host, port: admin.port, path, method, headers };
    const outgoing = request(target, (response) => {
      let text = "";
      response.setEncoding("utf8");
      response.on("data", (chunk: string) => {
        text += chunk;
      });
      response.on("end", () => {
        resolve({ status: response.statusCode, body: text, headers: response.headers });
      });
    });
    outgoing.on("error", reject);
    outgoing.end(body);
  });
}

describe("/livez", () => {
  test("is 200 whether or not the service is ready", async () => {
    checks = [{ name: "resource/a", failure: "not yet" }];
    expect(await ask("/livez")).toMatchObject({ status: 200, body: "ok\n" });
  });
});

describe("/readyz", () => {
  const good = { name: "serving", failure: undefined };
  const bad = { name: "resource/a", failure: "the cache is empty" };

  test.each<[string, readonly ReadinessCheck[], string, number, string]>([
    ["is 200 when every check is right", [good], "/readyz", 200, "ok\n"],
    [
      "is 503 with the failed checks",
      [good, bad],
      "/readyz",
      503,
      "not ready\nresource/a: the cache is empty\n",
    ],
    [
      "is 200 with the warnings",
      [good, { ...good, name: "resource/a", warning: "stale for 3 s" }],
      "/readyz",
      200,
      "ok\nresource/a: stale for 3 s\n",
    ],
    ["has every check with ?verbose", [good], "/readyz?verbose", 200, "ok\nserving: ok\n"],
    [
      "has the notes of checks with ?verbose only",
      [{ ...good, note: "half way" }],
      "/readyz?verbose",
      200,
      "ok\nserving: ok (half way)\n",
    ],
    ["has no notes by default", [{ ...good, note: "half way" }], "/readyz", 200, "ok\n"],
    [
      "has every check with ?verbose, also when it is not ready",
      [good, bad],
      "/readyz?verbose=1",
      503,
      "not ready\nserving: ok\nresource/a: the cache is empty\n",
    ],
  ])("%s", async (_sentence, given, path, status, body) => {
    checks = given;
    expect(await ask(path)).toMatchObject({ status, body });
  });

  test("is evaluated for each request, and not cacheable", async () => {
    checks = [bad];
    expect(await ask("/readyz")).toMatchObject({
      status: 503,
      headers: { "cache-control": "no-store" },
    });
    checks = [good];
    expect((await ask("/readyz")).status).toBe(200);
  });
});

describe("/metrics", () => {
  test("is the rendered metrics, with their media type", async () => {
    expect(await ask("/metrics")).toMatchObject({
      status: 200,
      body: "some_metric 1\n",
      headers: { "content-type": "text/plain; version=0.0.4" },
    });
  });

  test("is 500 if rendering fails, and the next request renders again", async () => {
    metricsText = () => Promise.reject(new Error("a secret"));
    const reply = await ask("/metrics");
    expect(reply.status).toBe(500);
    expect(reply.body).not.toContain("secret");
    metricsText = async () => "again 1\n";
    expect((await ask("/metrics")).status).toBe(200);
  });
});

describe("/log-level", () => {
  test("is the level, and PUT sets it", async () => {
    expect(await ask("/log-level")).toMatchObject({ status: 200, body: "info\n" });
    expect(await ask("/log-level", "PUT", "debug\n")).toMatchObject({
      status: 200,
      body: "debug\n",
    });
    expect(await ask("/log-level")).toMatchObject({ status: 200, body: "debug\n" });
  });

  test.each(["", "loud", "debug info", "x".repeat(1_000_000)])(
    "is not changed to another text",
    async (text) => {
      const { status, body } = await ask("/log-level", "PUT", text);
      expect([status, body]).toEqual([400, "The body has to be one of the levels info, debug.\n"]);
      expect((await ask("/log-level")).body).toBe("info\n");
    },
  );

  test.each(["POST", "DELETE", "OPTIONS"])("%s is 405", async (method) => {
    expect(await ask("/log-level", method)).toMatchObject({
      status: 405,
      headers: { allow: "GET, HEAD, PUT" },
    });
  });
});

describe("other requests", () => {
  test.each(["/", "/livez/", "/Livez", "/readyz/a", "//livez", "*", "/%2e%2e/livez"])(
    "%s is 404",
    async (path) => {
      expect((await ask(path)).status).toBe(404);
    },
  );

  test("404 names the paths that exist", async () => {
    expect((await ask("/")).body).toBe("The paths are /livez, /readyz, /metrics, /log-level.\n");
    await admin.close();
    const version = async () => ({ status: 200, body: "3.6.0" });
    admin = await startAdmin({
      listen: { host: "127.0.0.1", port: 0 },
      readiness: () => checks,
      metrics: { contentType: "text/plain", render: () => metricsText() },
      status: { has: (path) => path === "/", respond: version },
      others: new Map([["/version", version]]),
      logger,
    });
    expect((await ask("/log-level")).body).toBe(
      "The paths are /livez, /readyz, /metrics, /, /status.json, /version.\n",
    );
  });

  test.each(["POST", "PUT", "DELETE", "OPTIONS", "TRACE"])("%s is 405", async (method) => {
    expect(await ask("/livez", method)).toMatchObject({
      status: 405,
      headers: { allow: "GET, HEAD" },
    });
  });

  test("HEAD has the response of GET, without the body", async () => {
    expect(await ask("/livez", "HEAD")).toMatchObject({
      status: 200,
      body: "",
      headers: { "content-length": "3" },
    });
  });

  test("a body is ignored", async () => {
    expect((await ask("/livez", "POST", "x".repeat(1_000_000))).status).toBe(405);
    const withBody = "GET /livez HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc";
    const next = "GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    expect((await raw(withBody + next)).match(/^HTTP\/1\.1 200 OK\r$/gm)).toHaveLength(2);
  });

  test("invalid HTTP is refused", async () => {
    expect(await raw("nonsense\r\n\r\n")).toMatch(/^HTTP\/1\.1 400 /);
    expect((await ask("/livez")).status).toBe(200);
  });

  test("headers that are too large are refused", async () => {
    const large = `GET /livez HTTP/1.1\r\nhost: x\r\nx: ${"y".repeat(20_000)}\r\n\r\n`;
    expect(await raw(large)).toMatch(/^HTTP\/1\.1 431 /);
  });
});

/** Sends raw text, and returns the response until the connection ends. */
function raw(text: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(admin.port, admin.host, () => socket.write(text));
    let reply = "";
    socket.setEncoding("latin1");
    socket.on("data", (chunk: string) => {
      reply += chunk;
    });
    socket.on("end", () => resolve(reply));
    socket.on("error", reject);
  });
}

describe("the server", () => {
  test("rejects with Node.js' error if the port is in use", async () => {
    const again = startAdmin({
      listen: { host: "127.0.0.1", port: admin.port },
      readiness: () => [],
      metrics: { contentType: "text/plain", render: async () => "" },
      logger,
    });
    await expect(again).rejects.toMatchObject({ code: "EADDRINUSE" });
  });

  test("closes open connections, idempotently", async () => {
    const socket = connect(admin.port, admin.host);
    await new Promise((resolve) => socket.once("connect", resolve));
    const ended = new Promise((resolve) => socket.once("close", resolve));
    socket.on("error", () => {});
    socket.resume();
    await admin.close();
    await admin.close();
    await ended;
    await expect(ask("/livez")).rejects.toMatchObject({ code: "ECONNREFUSED" });
  });
});

describe.each([
  ["evil.example", false],
  ["evil.example:8080", false],
  ["127.0.0.1.evil.example", false],
  ["127.0.0.1:8080", true],
  ["[::1]:8080", true],
  ["localhost", true],
])("a request with the host %s, on a loopback address,", (host, isServed) => {
  const outcome = isServed ? "" : "does not ";

  test(`${outcome}changes the log level`, async () => {
    const { status } = await ask("/log-level", "PUT", "debug", host);
    expect(status).toBe(isServed ? 200 : 403);
    expect((await ask("/log-level")).body).toBe(isServed ? "debug\n" : "info\n");
  });

  test(`${outcome}reads the metrics`, async () => {
    const { status, body } = await ask("/metrics", "GET", undefined, host);
    expect([status, body.includes("some_metric")]).toEqual([isServed ? 200 : 403, isServed]);
  });

  test(`has the status of probes${isServed ? ", and what it is of" : " alone"}`, async () => {
    checks = [{ name: "resource/secret-name", failure: "unreachable" }];
    expect((await ask("/livez", "GET", undefined, host)).status).toBe(200);
    const { status, body } = await ask("/readyz?verbose", "GET", undefined, host);
    expect([status, body.includes("secret-name")]).toEqual([503, isServed]);
  });
});
