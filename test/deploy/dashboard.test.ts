import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, onTestFinished, test } from "vitest";
import { stringify } from "yaml";
import { promtool as binary } from "../../scripts/promtool.ts";
import { unknownSeries } from "./exposed-metrics.ts";

interface Dashboard {
  readonly panels: readonly {
    readonly id: number;
    readonly title: string;
    readonly gridPos: { readonly x: number; readonly y: number };
    readonly targets?: readonly { readonly expr: string; readonly legendFormat: string }[];
  }[];
  readonly templating: { readonly list: readonly { readonly definition?: string }[] };
}

const run = promisify(execFile);
const { panels, templating }: Dashboard = JSON.parse(
  await readFile("deploy/grafana/watch-fanout.json", "utf8"),
);
const targets = panels.flatMap((panel) => panel.targets ?? []);
const promtool = await binary.installed();

describe("The dashboard", () => {
  test("queries series and labels that the service exposes", () => {
    const definitions = templating.list.map(({ definition }) => definition ?? "");
    expect(targets.length).toBeGreaterThan(20);
    expect(unknownSeries([...targets.map(({ expr }) => expr), ...definitions])).toEqual([]);
  });

  test("has a legend of labels that its query keeps", () => {
    for (const { expr, legendFormat } of targets) {
      const kept = /\bby \(([^)]*)\)/.exec(expr)?.[1]?.split(", ");
      if (kept === undefined) continue;
      const shown = [...legendFormat.matchAll(/\{\{(\w+)\}\}/g)].map(([, label = ""]) => label);
      expect(kept).toEqual(expect.arrayContaining(shown));
    }
  });

  test("has each panel once, with a place of its own", () => {
    expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length);
    expect(new Set(panels.map(({ title }) => title)).size).toBe(panels.length);
    const places = panels.map(({ gridPos: { x, y } }) => `${x},${y}`);
    expect(new Set(places).size).toBe(panels.length);
  });

  test.skipIf(promtool === undefined)(
    "has queries that Prometheus accepts (needs promtool: node scripts/promtool.ts)",
    async () => {
      const folder = await mkdtemp(join(tmpdir(), "watch-fanout-dashboard-"));
      onTestFinished(() => rm(folder, { recursive: true }));
      const file = join(folder, "queries.yaml");
      const rules = targets.map(({ expr }, index) => ({
        record: `query:${index}`,
        expr: expr.replaceAll("$__rate_interval", "5m"),
      }));
      await writeFile(file, stringify({ groups: [{ name: "queries", rules }] }));
      await run(promtool ?? "", ["check", "rules", file], { timeout: 160_000 });
    },
  );
});
