import { writeFileSync } from "node:fs";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { makeLivePage } from "../../scripts/live-page.ts";
import { type Client, connect } from "../../src/client/connect.ts";
import { jsonValues } from "../../src/client/values/value-codec.ts";
import { tokenDigest } from "../../src/identity/token-file.ts";
import { type Served, startServe, untilStatus } from "../cli/serve/serve-process.ts";
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

  /** A service with 300 pods, and a client that writes. */
  async function service(...args: readonly string[]): Promise<{ served: Served; client: Client }> {
    const files = temporaryFiles({ "service.yaml": config }, (remove) => closing.push(remove));
    const served = await startServe(["--config", files["service.yaml"], ...args]);
    closing.push(() => served.process[Symbol.asyncDispose]());
    await untilStatus(`${served.admin}/readyz`, 200);
    const client = connect({ address: served.grpc, token: "writer", timeoutMs: 60_000 });
    closing.push(() => client.close());
    const pods = client.resource("pods", jsonValues<Pod>());
    await Promise.all(
      Array.from({ length: 300 }, (_, i) => pods.put(`team-${i % 3}/web-${1_000 + i}`, pod(i))),
    );
    return { served, client };
  }

  async function open({ admin }: Served, hash: string = "resource=pods"): Promise<Page> {
    const page = await openPage(browser);
    await page.goto(`${admin}/live#${hash}`);
    return page;
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

  test("shows what the token may read, and without one what any caller may", async () => {
    const lines = ["viewer", "writer"].map((name) => `sha256:${tokenDigest(name)} ${name}\n`);
    const files = temporaryFiles({ tokens: "", "policy.yaml": policy }, (remove) =>
      closing.push(remove),
    );
    writeFileSync(files.tokens, lines.join(""));
    const { served } = await service(
      "--token-file",
      files.tokens,
      "--policy",
      files["policy.yaml"],
    );
    const page = await open(served);
    await page.locator("#problem", { hasText: "no resource that this caller may read" }).waitFor();
    await inspect(page, "live-refused");
    await page.locator("#token").fill("wrong");
    await page.getByRole("button", { name: "Show", exact: true }).click();
    await page.locator("#problem", { hasText: "UNAUTHENTICATED" }).waitFor();
    await page.locator("#token").fill("viewer");
    await page.getByRole("button", { name: "Show", exact: true }).click();
    await shown(page, "300 objects");
    expect(await page.locator("#resource option").allTextContents()).toEqual(["pods"]);
    expect(await page.locator("#problem").textContent()).toBe("");
  });
});
