import { once } from "node:events";
import { connect } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { Tier } from "../relay/tiers.ts";
import { adminUrl } from "./streaming-service.ts";

async function service(): Promise<Tier> {
  const tier = await Tier.start({});
  onTestFinished(() => tier.stop());
  return tier;
}

/** Opens the updates. */
async function updates(tier: Tier): Promise<Response> {
  const response = await fetch(adminUrl(tier, "/status/events"));
  onTestFinished(() => response.body?.cancel().catch(() => {}));
  return response;
}

type Status = Record<string, unknown>;

/** The data of the events until `isEnough`. */
async function read(
  response: Response,
  isEnough: (events: readonly Status[]) => boolean,
): Promise<Status[]> {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const found = [...text.matchAll(/^data: (.*)\n\n/gm)].map(([, json = ""]) => JSON.parse(json));
    if (isEnough(found)) return found;
    const { value, done } = (await reader?.read()) ?? { done: true };
    if (done) throw new Error(`It has ended: ${text}`);
    text += value;
  }
}

test("An open page gets the status at once, and again each second.", async () => {
  const tier = await service();
  const response = await updates(tier);
  expect(response.headers.get("content-type")).toBe("text/event-stream");
  const [first, ...others] = await read(response, (events) => {
    // The next may show the same status, where the machine is busy.
    return new Set(events.map(({ at }) => at)).size === 2;
  });
  expect(first).toMatchObject({ service: { isReady: true }, resources: [{ name: "default" }] });
  expect(others.at(-1)).toMatchObject({ service: { isReady: true } });
});

test("At most 32 pages are updated at once.", async () => {
  const tier = await service();
  const all = await Promise.all(Array.from({ length: 33 }, () => updates(tier)));
  const refused = all.filter(({ status }) => status === 503);
  expect(refused).toHaveLength(1);
  expect(await refused[0]?.text()).toContain("32 status pages are open, the maximum.");
  const [closed] = all.filter(({ status }) => status === 200);
  await closed?.body?.cancel();
  // The service notices it a moment later.
  for (;;) {
    const next = await updates(tier);
    if (next.status === 200) return;
  }
});

test("Pages that one connection has requested at once end with it.", async () => {
  const tier = await service();
  const { hostname, port } = new URL(adminUrl(tier, "/"));
  // More than may be open, although each connection is closed again.
  for (let i = 0; i < 12; i++) {
    const socket = connect(Number(port), hostname);
    socket.write("GET /status/events HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(4));
    await once(socket, "data");
    socket.destroy();
  }
  await expect.poll(async () => (await updates(tier)).status).toBe(200);
});

test("The updates end when the service drains, while its clients are waited for.", async () => {
  const tier = await service();
  const response = await updates(tier);
  const reader = response.body?.getReader();
  const stopped = tier.stop();
  for (;;) {
    const { done } = (await reader?.read()) ?? { done: true };
    if (done) break;
  }
  await stopped;
});
