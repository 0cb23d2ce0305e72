import { once } from "node:events";
import { createServer, type IncomingMessage, type RequestListener, request } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import { pino } from "pino";
import { expect, onTestFinished, test } from "vitest";
import { liveRefusal } from "../../../src/cli/serve/main-process.ts";
import { parseTokenFile, StaticTokens, tokenDigest } from "../../../src/identity/token-file.ts";
import { startAdmin } from "../../../src/server/admin/admin.ts";
import { LivePages } from "../../../src/server/admin/live/live-pages.ts";
import { StatusPages } from "../../../src/server/admin/status/status-pages.ts";
import { listWatchMethods, writeMethods } from "../../../src/wire/methods.ts";
import { FakeClock } from "../../fake-clock.ts";

const { path } = listWatchMethods.List;

interface Options {
  readonly tokens?: StaticTokens;
  readonly refusal?: string;
}

/** An admin port whose live pages call a service that answers as `listener` does. */
async function serve(listener: RequestListener, { tokens, refusal }: Options = {}) {
  const service = createServer(listener);
  service.listen(0, "127.0.0.1");
  await once(service, "listening");
  const { port } = service.address() as AddressInfo;
  const target = () => ({ host: "127.0.0.1", port, hasTls: false });
  const live = new LivePages({ target, refusal });
  const admin = await startAdmin({
    ...{ listen: { host: "127.0.0.1", port: 0 }, logger: pino({ level: "silent" }), live, tokens },
    readiness: () => [],
    metrics: { contentType: "text/plain", render: async () => "" },
  });
  onTestFinished(async () => {
    live.close();
    await admin.close();
    service.closeAllConnections();
    service.close();
  });
  const send = (
    target: string,
    headers: Readonly<Record<string, string>> = {},
    body: string | Buffer = "request",
    method: string = "POST",
  ): Promise<IncomingMessage> =>
    new Promise((resolve, reject) => {
      request({ port: admin.port, host: "127.0.0.1", path: target, method, headers }, resolve)
        .on("error", reject)
        .end(body);
    });
  return {
    live,
    send,
    origin: `http://127.0.0.1:${admin.port}`,
    closeService: () => service.close(),
  };
}

test("A call is passed on with its message, its type and the token of the page, and with nothing else of its caller.", async () => {
  const asked: Record<string, unknown>[] = [];
  const { send, origin } = await serve(async (incoming, response) => {
    const { headers, url } = incoming;
    asked.push({ url, ...headers, body: await text(incoming) });
    response.writeHead(200, { "content-type": "application/proto", "x-other": "1" }).end("answer");
  });
  const response = await send(path, {
    ...{ origin, "content-type": "application/proto", "connect-timeout-ms": "5" },
    ...{ authorization: "Bearer port", "x-service-authorization": "Bearer page" },
    ...{ "x-forwarded-client-cert": "By=root", cookie: "a=b" },
  });
  expect([response.statusCode, await text(response)]).toEqual([200, "answer"]);
  expect(response.headers).toMatchObject({ "content-type": "application/proto" });
  expect(response.headers).not.toHaveProperty("x-other");
  expect(asked).toEqual([
    {
      ...{ url: path, host: expect.any(String), connection: "close", body: "request" },
      ...{ "content-type": "application/proto", "content-length": "7" },
      ...{ "connect-timeout-ms": "5", authorization: "Bearer page" },
    },
  ]);
});

test("A call of a page of another site, of another method, without a length or too large is refused.", async () => {
  let asked = 0;
  const { send, origin } = await serve((_, response) => {
    asked++;
    response.end();
  });
  const codes = [
    await send(path, { origin: "http://evil.example" }),
    await send(path, { origin: "null" }),
    await send(path, { host: "evil.example", origin: "http://evil.example" }),
    await send(writeMethods.Put.path, { origin }),
    await send(path, { origin, "transfer-encoding": "chunked" }),
    await send(path, { origin }, Buffer.alloc(64 * 1024 + 1)),
    await send(path, { origin }, "", "GET"),
  ].map(({ statusCode }) => statusCode);
  expect(codes).toEqual([403, 403, 403, 404, 413, 413, 405]);
  expect(asked).toBe(0);
});

test("With tokens, a call and the page need one of them.", async () => {
  const line = `sha256:${tokenDigest("secret")} operator\n`;
  const tokens = new StaticTokens(parseTokenFile(Buffer.from(line)), () => {});
  const { send, origin } = await serve((_, response) => void response.end("data"), { tokens });
  expect((await send(path, { origin })).statusCode).toBe(401);
  const { statusCode, headers } = await send("/live", {}, "", "GET");
  expect([statusCode, headers["www-authenticate"]]).toEqual([401, "Basic realm=watch-fanout"]);
  const basic = `Basic ${Buffer.from(":secret").toString("base64")}`;
  expect((await send(path, { origin, authorization: basic })).statusCode).toBe(200);
});

test("A call ends with its caller, and with the service.", async () => {
  const opened: IncomingMessage[] = [];
  const { send, origin, live } = await serve((incoming, response) => {
    opened.push(incoming);
    response.writeHead(200, { "content-type": "application/connect+proto" }).write("first");
  });
  const left = await send(path, { origin });
  left.destroy();
  await expect.poll(() => opened[0]?.destroyed).toBe(true);
  const kept = await send(path, { origin });
  kept.on("error", () => {});
  live.close();
  await expect.poll(() => [kept.destroyed, opened[1]?.destroyed]).toEqual([true, true]);
  expect((await send(path, { origin })).statusCode).toBe(503);
});

test("At most 64 calls are passed on at once.", async () => {
  const { send, origin } = await serve(
    (_, response) => void response.writeHead(200).flushHeaders(),
  );
  const all = await Promise.all(Array.from({ length: 64 }, () => send(path, { origin })));
  expect(all.map(({ statusCode }) => statusCode)).toEqual(all.map(() => 200));
  expect((await send(path, { origin })).statusCode).toBe(503);
  all[0]?.destroy();
  await expect.poll(async () => (await send(path, { origin })).statusCode).toBe(200);
  for (const each of all) each.destroy();
});

test("A service that does not answer is 502, and a refusal is said by the page and its calls.", async () => {
  const gone = await serve((incoming) => incoming.socket.destroy());
  const unanswered = await gone.send(path, { origin: gone.origin });
  expect([unanswered.statusCode, await text(unanswered)]).toEqual([
    ...[502, "The port of the service can't be reached: socket hang up.\n"],
  ]);
  const { send, origin } = await serve(() => {}, { refusal: "Not here." });
  const refused = [await send("/live", {}, "", "GET"), await send(path, { origin })];
  expect(refused.map(({ statusCode }) => statusCode)).toEqual([403, 403]);
  expect(await Promise.all(refused.map(text))).toEqual(["Not here.\n", "Not here.\n"]);
});

test("The page allows its own style and script, and nothing else.", async () => {
  const { send } = await serve(() => {});
  const page = await send("/live", {}, "", "GET");
  const policy = String(page.headers["content-security-policy"]);
  expect(policy).toMatch(/^default-src 'none'; style-src 'sha256-[^']+'; script-src 'self';/);
  expect(policy).not.toContain("unsafe");
  expect(await text(page)).not.toMatch(/<style>\/\*|https?:/);
});

test.each([
  ["127.0.0.1:1", "127.0.0.1:2", undefined],
  ["0.0.0.0:1", "0.0.0.0:2", undefined],
  ["127.0.0.1:1", "0.0.0.0:2", "Set --admin-token-file"],
  ["unix", "127.0.0.1:2", "Set --admin-token-file"],
])("A service at %s with its admin port at %s: %s", (service, port, refusal) => {
  const hostOf = (address: string) => ({ host: address.split(":")[0] ?? "", port: 1 });
  const listen = service === "unix" ? { path: "/socket", mode: 0o600 } : hostOf(service);
  const said = (tokenFile: object | undefined) =>
    liveRefusal({ listen, admin: { listen: hostOf(port), tokenFile } } as never);
  if (refusal === undefined) expect(said(undefined)).toBeUndefined();
  else expect(said(undefined)).toContain(refusal);
  expect(said({})).toBeUndefined();
});

test("A service that requires client certificates has no live page, and one that requests them has.", () => {
  const said = (clientAuth: string) =>
    liveRefusal({
      ...{ listen: { host: "127.0.0.1", port: 1 }, tls: { clientAuth } },
      admin: { listen: { host: "127.0.0.1", port: 2 }, tokenFile: {} },
    } as never);
  expect(said("require")).toContain("Set --tls-client-auth request with a --policy");
  expect([said("request"), said("off")]).toEqual([undefined, undefined]);
});

test.each([
  [true, 1],
  [false, 0],
])("The status page links to it if it exists: %s.", async (hasLivePage, links) => {
  const clock = new FakeClock();
  const source = { overview: neverAsked, streams: neverAsked };
  const status = new StatusPages(source, clock, pino({ level: "silent" }), hasLivePage);
  onTestFinished(() => status.close());
  const page = await status.respond("/", "");
  if ("begin" in page) throw new Error("It is a page.");
  expect(page.body.match(/href="\/live"|live objects/g) ?? []).toHaveLength(2 * links);
  expect(page.body).toContain('<footer>\n      <a href="/');
});

function neverAsked(): Promise<never> {
  throw new Error("The page itself has no data.");
}
