import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { Client, credentials, Metadata } from "@grpc/grpc-js";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { tokenDigest } from "../../src/identity/token-file.ts";
import { type Served, startServe, untilStatus } from "../cli/serve/serve-process.ts";
import { type Etcd, startEtcd } from "../etcd/etcd.ts";
import { temporaryFiles } from "../relay/tiers.ts";
import { TestClient } from "../server/test-client.ts";
import { openWatches } from "../status/streaming-service.ts";
import { findChromium, inspect, launchChromium, openPage } from "./chromium.ts";

const resources = ["pods", "nodes"];
const identities = ["deploy-controller", "node-agent", "dashboard", "exporter"];

/** As large as the windows of a client, so that one that does not read is behind at once. */
const value = Buffer.alloc(64 * 1024, "x");

describe.skipIf(findChromium() === undefined)("The status page of a service of etcd", () => {
  let etcd: Etcd;
  let served: Served;
  let browser: Browser;
  let clients: TestClient[];
  const closing: (() => void)[] = [];

  beforeAll(async () => {
    etcd = await startEtcd();
    const files = temporaryFiles({ tokens: "" }, (remove) => closing.push(remove));
    const tokens = identities.map((name) => `sha256:${tokenDigest(name)} ${name}\n`);
    writeFileSync(files.tokens, tokens.join(""));
    served = await startServe([
      ...["--etcd", etcd.url, "--token-file", files.tokens, "--stall-timeout", "5m"],
      ...resources.flatMap((name) => ["--resource", `${name}=/${name}/`]),
    ]);
    await untilStatus(`${served.admin}/readyz`, 200);
    browser = await launchChromium();
    clients = identities.map(clientOf);
    for (const [i, client] of clients.entries()) {
      await openWatches(
        client,
        Array.from({ length: 60 }, (_, k) => ({
          resource: resources[i % 2] ?? "",
          prefix: `team-${(k % 3) + i}/`,
        })),
      );
    }
  });

  afterAll(async () => {
    for (const client of clients ?? []) client.close();
    await browser?.close();
    await served?.process[Symbol.asyncDispose]();
    await etcd?.stop();
    for (const close of closing) close();
  });

  /** A client with a connection of its own. */
  function clientOf(token: string): TestClient {
    const metadata = new Metadata();
    metadata.set("authorization", `Bearer ${token}`);
    const options = { "grpc.use_local_subchannel_pool": 1 };
    const channel = new Client(served.grpc, credentials.createInsecure(), options);
    return new TestClient(channel, undefined, metadata);
  }

  async function open(url = served.admin): Promise<Page> {
    const page = await openPage(browser);
    await page.goto(url);
    return page;
  }

  const level = (page: Page) => page.locator("#level");
  const summary = (page: Page) => page.locator("#summary");
  const groups = (page: Page) => page.locator("#groups > tbody > tr:not(.members)");

  test("says that it is well, and which replica it is", async () => {
    const page = await open();
    await level(page).filter({ hasText: "ok" }).waitFor();
    expect(await summary(page).textContent()).toBe(
      `240 open streams, none behind; 2 resources of etcd at ${etcd.url}`,
    );
    const instance = await page.locator("#instance").textContent();
    await page.locator("#tiles", { hasText: "Failed calls" }).waitFor();
    expect(await page.locator("#certificates-section").isVisible()).toBe(false);
    expect(instance).toMatch(/\.[0-9a-f]{6}$/);
    expect(await page.title()).toBe(`ok · ${instance} · watch-fanout`);
    // Three prefixes of each identity.
    expect(await groups(page).count()).toBe(12);
    await inspect(page, "well");
  });

  test("shows texts of clients in groups as text", async () => {
    const prefix = "<img src=x onerror=alert(1)><b>bold</b>";
    const [watch] = await openWatches(clients[3] ?? clientOf("exporter"), [
      { resource: "nodes", prefix },
    ]);
    const page = await open();
    const group = groups(page).filter({ hasText: `prefix ${prefix}` });
    await group.getByRole("button").click();
    await page
      .locator("#groups tr.members td", { hasText: `prefix ${prefix}` })
      .first()
      .waitFor();
    expect(await page.locator("main table b, main img").count()).toBe(0);
    watch?.cancel();
    await group.waitFor({ state: "detached" });
  });

  test("shows the streams of a group below it, and lists them", async () => {
    const page = await open();
    const group = groups(page).filter({ hasText: "node-agent" }).first();
    await group.getByRole("button").focus();
    await page.keyboard.press("Enter");
    const members = page.locator("#groups tr.members");
    await members.locator("tbody tr").nth(19).waitFor();
    expect(await group.getByRole("button").getAttribute("aria-expanded")).toBe("true");
    expect(await members.locator("p").textContent()).toBe("");
    await page.keyboard.press("Enter");
    await members.waitFor({ state: "detached" });
    expect(await group.getByRole("button").evaluate((each) => each.matches(":focus"))).toBe(true);
  });

  test("shows the certificates in use, and for how long they are valid", async () => {
    const [cert, key] = ["cert", "key"].map((name) =>
      fileURLToPath(new URL(`../config/certificates/${name}.pem`, import.meta.url)),
    );
    const tls = ["--tls-cert", cert ?? "", "--tls-key", key ?? ""];
    const other = await startServe(["--resource", "pods=/pods/", ...tls]);
    await using _process = other.process;
    const page = await open(other.admin);
    const row = page.locator("#certificates tbody tr");
    await row.filter({ hasText: "server-certificate" }).waitFor();
    expect(await row.textContent()).toMatch(
      /server-certificate\d+ d \d+ h2\d{3}-.* UTC.*cert\.pem/,
    );
    await inspect(page, "certificates");
  });

  test("says that streams are behind, the worst first, and since when", async () => {
    const writer = clientOf("exporter");
    onTestFinished(() => writer.close());
    for (let i = 0; i < 120; i++) {
      await writer.put({ resource: "pods", key: `team-2/${i}`, value });
    }
    const page = await open();
    // Those of dashboard and deploy-controller that watch team-2/; they have not read for 5 s.
    await level(page).filter({ hasText: "degraded" }).waitFor();
    expect(await summary(page).textContent()).toMatch(
      /^40 of 240 streams are behind, the worst by \d+ revisions, since .* UTC \(\d+s\)(?:; 1 more problem)?$/,
    );
    expect(await groups(page).first().textContent()).toMatch(/dashboard|deploy-controller/);
    await groups(page).first().getByRole("button").click();
    await page.locator("#groups tr.members tbody tr").nth(19).waitFor();
    await inspect(page, "behind");
  });

  test("says that etcd is dead, since when and why, and what was logged", async () => {
    await etcd.kill();
    const page = await open();
    await level(page).filter({ hasText: "failing" }).waitFor();
    expect(await summary(page).textContent()).toMatch(
      /^etcd at http:\S+ can't be reached, 2 of 2 resources are served stale from the cache, since .* UTC \(\d+s\); [12] more problems?$/,
    );
    expect(await page.locator("#reasons .detail").textContent()).toContain("ECONNREFUSED");
    await page.locator("#problems li").first().filter({ hasText: "resuming the watch" }).waitFor();
    expect(await page.locator("#problems li").count()).toBeLessThanOrEqual(5);
    await inspect(page, "etcd-dead");
  });
});
