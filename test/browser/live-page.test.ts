import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { makeLivePage } from "../../scripts/live-page.ts";
import type { ConnectOptions } from "../../src/client/calls/options.ts";
import { type Client, connect } from "../../src/client/connect.ts";
import { jsonValues } from "../../src/client/values/value-codec.ts";
import { tokenDigest } from "../../src/identity/token-file.ts";
import { type Served, startServe, untilStatus } from "../cli/serve/serve-process.ts";
import { Authority } from "../identity/authority.ts";
import { temporaryFiles } from "../relay/tiers.ts";
import { findChromium, inspect, launchChromium, openPage } from "./chromium.ts";

interface Pod {
  readonly metadata: { readonly labels: Readonly<Record<string, string>> };
  readonly spec: { readonly node: string; readonly image: string };
  readonly status: { readonly phase: string };
}

function pod(i: number, phase: string = "Running"): Pod {
  return {
    metadata: { labels: { app: i % 2 === 0 ? "web" : "db" } },
    spec: { node: `node-${i % 7}`, image: `registry.example/web:1.${i}` },
    status: { phase },
  };
}

const config = `resources:
  - name: pods
    prefix: /pods/
    codec: json
    fields: [spec.node, status.phase]
  - notes=/notes/
`;

const policy = `roles:
  - name: reader
    rules: [{ resources: [pods], verbs: [get, list, watch], prefixes: ["*"] }]
  - name: writer
    rules: [{ resources: ["*"], verbs: ["*"], prefixes: ["*"] }]
bindings:
  - { role: reader, subjects: ["viewer"] }
  - { role: writer, subjects: ["writer"] }
`;

describe.skipIf(findChromium() === undefined)("The live page", () => {
  let browser: Browser;
  const closing: (() => unknown)[] = [];

  beforeAll(async () => {
    await makeLivePage();
    browser = await launchChromium();
  });

  afterAll(async () => {
    await browser?.close();
    for (const close of closing) await close();
  });

  /** Starts a process with the resources, and waits until it is ready. */
  async function start(...args: readonly string[]): Promise<Served> {
    const files = temporaryFiles({ "service.yaml": config }, (remove) => closing.push(remove));
    const served = await startServe(["--config", files["service.yaml"], ...args]);
    closing.push(() => served.process[Symbol.asyncDispose]());
    return served;
  }

  /** A service with 300 pods, and a client that writes. */
  async function service(...args: readonly string[]): Promise<{ served: Served; client: Client }> {
    const served = await start(...args);
    await untilStatus(`${served.admin}/readyz`, 200);
    return { served, client: await filled({ address: served.grpc }) };
  }

  /** A client that has written 300 pods. */
  async function filled(options: ConnectOptions): Promise<Client> {
    const client = connect({ token: "writer", timeoutMs: 60_000, ...options });
    closing.push(() => client.close());
    const pods = client.resource("pods", jsonValues<Pod>());
    await Promise.all(
      Array.from({ length: 300 }, (_, i) => pods.put(`team-${i % 3}/web-${1_000 + i}`, pod(i))),
    );
    return client;
  }

  /** Files with the tokens of a viewer and of a writer, and with their rights, as options. */
  function limited(): string[] {
    const lines = ["viewer", "writer"].map((name) => `sha256:${tokenDigest(name)} ${name}\n`);
    const contents = { tokens: lines.join(""), "policy.yaml": policy };
    const files = temporaryFiles(contents, (remove) => closing.push(remove));
    return ["--token-file", files.tokens, "--policy", files["policy.yaml"]];
  }

  async function open(
    { admin }: Served,
    hash: string = "resource=pods",
    options: BrowserContextOptions = {},
  ): Promise<Page> {
    const page = await openPage(browser, options);
    await page.goto(`${admin}/live#${hash}`);
    return page;
  }

  /** Enters a token. */
  async function enter(page: Page, token: string): Promise<void> {
    await page.locator("#token").fill(token);
    await page.getByRole("button", { name: "Show", exact: true }).click();
  }

  /** Checks that a page has the pods, and then the one that is written. */
  async function follows(page: Page, client: Client): Promise<void> {
    await shown(page, "300 objects");
    await client.put("pods", "another", Buffer.from(JSON.stringify(pod(1))));
    await shown(page, "301 objects");
    await page.getByRole("button", { name: "another" }).click();
    await page.locator("#history li", { hasText: "added" }).waitFor();
  }

  const rows = (page: Page) => page.locator("#table tbody tr");
  const shown = (page: Page, text: string) => page.locator("#matched", { hasText: text }).waitFor();

  test("shows objects as they change, filters and sorts them, and has their history", async () => {
    const { served, client } = await service();
    const pods = client.resource("pods", jsonValues<Pod>());
    const page = await open(served);
    await shown(page, "300 objects, the first 200 are shown");
    expect(await page.locator("#table thead th").allTextContents()).toEqual([
      ...["Key", "spec.node", "status.phase", "Revision", "Version"],
    ]);
    await page.locator("#filter").fill("web-1017");
    await shown(page, "1 of 300 objects");
    expect(await rows(page).locator("td").allTextContents()).toEqual([
      ...["team-2/web-1017", "node-3", "Running", expect.any(String), "1"],
    ]);
    const { modRevision } = await pods.put("team-2/web-1017", pod(17, "Failed"));
    await rows(page).locator("td", { hasText: "Failed" }).waitFor();
    await page.getByRole("button", { name: "team-2/web-1017" }).click();
    const history = page.locator("#history li");
    await history.nth(1).waitFor();
    expect(await history.allTextContents()).toEqual([
      `${modRevision} modified`,
      expect.stringMatching(/^\d+ added$/),
    ]);
    expect(JSON.parse((await page.locator("#value").textContent()) ?? "")).toEqual(
      pod(17, "Failed"),
    );
    await history.nth(1).getByRole("button").click();
    expect(JSON.parse((await page.locator("#value").textContent()) ?? "")).toEqual(pod(17));
    await inspect(page, "live");
    await history.first().getByRole("button").click();
    await pods.delete("team-2/web-1017");
    await shown(page, "0 of 299 objects");
    await history.filter({ hasText: "deleted" }).waitFor();
    await page.locator("#facts", { hasText: "Deleted at" }).waitFor();
    await page.locator("#filter").fill("");
    await page.locator("#table th", { hasText: "Revision" }).getByRole("button").click();
    await pods.put("newest", pod(1));
    await rows(page).first().getByRole("button", { name: "newest" }).waitFor();
    await page.locator("#labels").fill("app=db");
    await page.getByRole("button", { name: "Show", exact: true }).click();
    await shown(page, "150 objects");
  });

  test("shows text, and what is no text, of another resource", async () => {
    const { served, client } = await service();
    await client.put("notes", "text", Buffer.from("two\nlines"));
    await client.put("notes", "bytes", Buffer.from([0xff, 0, 1]));
    const page = await open(served, "resource=notes");
    await shown(page, "2 objects");
    expect(await rows(page).locator("td.value").allTextContents()).toEqual([
      "ff 00 01",
      "two lines",
    ]);
    await page.getByRole("button", { name: "text" }).click();
    await page.locator("#value", { hasText: "two" }).waitFor();
    await inspect(page, "live-text");
  });

  test("reads the history of an object that changes all the time a few times a second", async () => {
    const { served, client } = await service();
    await client.put("notes", "hot", Buffer.from("0"));
    const page = await open(served, "resource=notes");
    await page.getByRole("button", { name: "hot" }).click();
    await page.locator("#history li").first().waitFor();
    let reads = 0;
    page.on("request", (request) => {
      if (request.url().endsWith("/History")) reads++;
    });
    const begin = performance.now();
    const changes = 300;
    for (let i = 1; i <= changes; i++) await client.put("notes", "hot", Buffer.from(`${i}`));
    await page.locator("#value", { hasText: `${changes}` }).waitFor();
    const most = Math.ceil((performance.now() - begin) / 250) + 2;
    expect(reads).toBeGreaterThan(0);
    expect(reads).toBeLessThanOrEqual(most);
  });

  test("shows what the token may read, and without one what any caller may", async () => {
    const { served } = await service(...limited());
    const page = await open(served);
    await page.locator("#problem", { hasText: "no resource that this caller may read" }).waitFor();
    await inspect(page, "live-refused");
    await enter(page, "wrong");
    await page.locator("#problem", { hasText: "UNAUTHENTICATED" }).waitFor();
    await enter(page, "viewer");
    await shown(page, "300 objects");
    expect(await page.locator("#resource option").allTextContents()).toEqual(["pods"]);
    expect(await page.locator("#problem").textContent()).toBe("");
    const other = await open(served, "resource=notes&prefix=a");
    await other.locator("#problem", { hasText: "Enter a token of the service" }).waitFor();
    expect(await other.locator("#panes").isVisible()).toBe(false);
    await enter(other, "writer");
    await shown(other, "0 objects");
    expect(await other.locator("#resource").inputValue()).toBe("notes");
    expect(await other.locator("#prefix").inputValue()).toBe("a");
    await enter(other, "wrong");
    await other.locator("#problem", { hasText: "UNAUTHENTICATED" }).waitFor();
    expect(await other.locator("#panes").isVisible()).toBe(false);
  });

  test("calls a service with TLS that requests client certificates, behind a token of the admin port", async () => {
    const authority = await Authority.create();
    const { cert, key } = await authority.issueForServer();
    const admin = `sha256:${tokenDigest("operator")} operator\n`;
    const contents = { cert: `${cert}`, key: `${key}`, ca: `${authority.cert}`, admin };
    const files = temporaryFiles(contents, (remove) => closing.push(remove));
    const served = await start(
      ...["--tls-cert", files.cert, "--tls-key", files.key],
      ...["--tls-client-ca", files.ca, "--tls-client-auth", "request"],
      ...["--admin-tls-cert", files.cert, "--admin-tls-key", files.key],
      ...["--admin-token-file", files.admin, ...limited()],
    );
    const client = await filled({ address: served.grpc, tls: { ca: authority.cert } });
    const page = await open(served, "resource=pods", {
      ...{ ignoreHTTPSErrors: true, httpCredentials: { username: "", password: "operator" } },
    });
    await page.locator("#problem", { hasText: "no resource that this caller may read" }).waitFor();
    await enter(page, "viewer");
    await follows(page, client);
  });

  test("says why it has no data if the service requires client certificates", async () => {
    const authority = await Authority.create();
    const { cert, key } = await authority.issueForServer();
    const contents = { cert: `${cert}`, key: `${key}`, ca: `${authority.cert}` };
    const files = temporaryFiles(contents, (remove) => closing.push(remove));
    const served = await start(
      ...["--tls-cert", files.cert, "--tls-key", files.key, "--tls-client-ca", files.ca],
    );
    const page = await open(served);
    expect(await page.locator("body").textContent()).toContain("Set --tls-client-auth request");
  });

  test("follows a service with workers", async () => {
    const { served, client } = await service("--workers", "2", ...limited());
    const page = await open(served);
    await page.locator("#problem", { hasText: "no resource that this caller may read" }).waitFor();
    await enter(page, "viewer");
    await follows(page, client);
  });

  test("follows a relay, with the rights of the token there", async () => {
    const { served: root, client } = await service();
    const relay = await startServe(["--upstream", root.grpc, ...limited()]);
    closing.push(() => relay.process[Symbol.asyncDispose]());
    await untilStatus(`${relay.admin}/readyz`, 200);
    const page = await open(relay);
    await enter(page, "viewer");
    await follows(page, client);
  });

  test("says that it is empty, that it waits for a service that is gone, and shows long keys and values", async () => {
    const { served, client } = await service();
    const page = await open(served, "resource=notes");
    await shown(page, "0 objects");
    await inspect(page, "live-empty");
    const key = `team/${"a-long-name-".repeat(30)}/<b>x</b>`;
    await client.put("notes", key, Buffer.from("word ".repeat(2_000) + "x".repeat(2_000)));
    await client.put("notes", " ", Buffer.from(""));
    await shown(page, "2 objects");
    await page.getByRole("button", { name: '" "', exact: true }).click();
    await page.locator("#object-title", { hasText: '" "' }).waitFor();
    await page.getByRole("button", { name: "a-long-name" }).click();
    await page.locator("#history li").first().waitFor();
    expect(await page.locator("main b").count()).toBe(0);
    await inspect(page, "live-long");
    await served.process[Symbol.asyncDispose]();
    await page.locator("#connection", { hasText: "Not connected, retrying" }).waitFor();
    await page.locator("#problem", { hasText: "UPSTREAM_UNAVAILABLE" }).waitFor();
    await inspect(page, "live-gone");
  });
});
