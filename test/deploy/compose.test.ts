import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, onTestFinished, test } from "vitest";
import { parse } from "yaml";
import { promtool as binary } from "../../scripts/promtool.ts";
import { load } from "../config/sources.ts";
import { text } from "./built-manifests.ts";

const run = promisify(execFile);
const folder = "deploy/compose";

interface Service {
  readonly command?: readonly string[];
  readonly volumes?: readonly string[];
  readonly ports?: readonly string[];
}

const compose: { services: Record<string, Service>; volumes: Record<string, unknown> } = parse(
  text(join(folder, "compose.yaml")),
  { merge: true },
);
const embedded: typeof compose = parse(text(join(folder, "embedded.yaml")));
const promtool = await binary.installed();

describe("The compose file", () => {
  test("mounts files that exist, and volumes that are declared", () => {
    for (const { services, volumes: declared } of [compose, embedded]) {
      for (const volume of Object.values(services).flatMap(({ volumes = [] }) => volumes)) {
        const [source = ""] = volume.split(":");
        if (source.startsWith(".")) expect(existsSync(join(folder, source)), source).toBe(true);
        else expect(Object.keys(declared)).toContain(source);
      }
    }
  });

  test("starts replicas with a configuration that the service accepts, and that they have", () => {
    const { etcd, resources } = load({ yaml: text(join(folder, "watch-fanout.yaml")) });
    expect(etcd?.endpoints).toEqual(["http://etcd:2379"]);
    expect(resources).toHaveLength(1);
    for (const name of ["replica-1", "replica-2"]) {
      const { command, volumes } = compose.services[name] ?? {};
      const path = "/etc/watch-fanout/watch-fanout.yaml";
      expect(command).toEqual(["serve", "--config", path]);
      expect(volumes).toContain(`./watch-fanout.yaml:${path}:ro`);
    }
  });

  test("is open to this machine only, each port once", () => {
    for (const { services } of [compose, embedded]) {
      const ports = Object.values(services).flatMap((service) => service.ports ?? []);
      for (const port of ports) expect(port).toMatch(/^127\.0\.0\.1:\d+:\d+$/);
      expect(new Set(ports.map((port) => port.split(":")[1])).size).toBe(ports.length);
    }
  });

  test("without etcd has the data in its volume", () => {
    const { command = [], volumes } = embedded.services["watch-fanout"] ?? {};
    // The default is relative to the working directory of the image.
    expect(load({}).data?.path).toBe("watch-fanout.data/store.db");
    expect(command).not.toContain("--data");
    expect(volumes).toEqual(["data:/var/lib/watch-fanout"]);
    expect(text("deploy/Dockerfile")).toContain("\nWORKDIR /var/lib/watch-fanout\n");
  });

  test("has a collector that the replicas export to, with pipelines of what it declares", () => {
    const { otlp } = load({ yaml: text(join(folder, "watch-fanout.yaml")) });
    expect(otlp?.endpoint).toBe("http://collector:4318");
    const { service, ...declared } = parse(text(join(folder, "collector.yaml")));
    expect(declared.receivers.otlp.protocols.http.endpoint).toBe("0.0.0.0:4318");
    for (const pipeline of Object.values<Record<string, string[]>>(service.pipelines)) {
      for (const [kind, names] of Object.entries(pipeline)) {
        for (const name of names) expect(Object.keys(declared[kind]), kind).toContain(name);
      }
    }
    const [host = ""] = declared.exporters["otlp/jaeger"].endpoint.split(":");
    expect(Object.keys(compose.services)).toContain(host);
  });

  test("lets Prometheus scrape services of the file", () => {
    const { scrape_configs } = parse(text(join(folder, "prometheus.yaml")));
    for (const { static_configs } of scrape_configs) {
      for (const target of static_configs[0].targets) {
        expect(Object.keys(compose.services)).toContain(target.split(":")[0]);
      }
    }
  });
});

test
  .skipIf(promtool === undefined)
  .each(["compose/prometheus.yaml", "prometheus/scrape-config.yaml"])(
  "Prometheus accepts %s (needs promtool: node scripts/promtool.ts)",
  async (name) => {
    const work = await mkdtemp(join(tmpdir(), "watch-fanout-prometheus-"));
    onTestFinished(() => rm(work, { recursive: true }));
    const file = join(work, "prometheus.yaml");
    const alerts = join(process.cwd(), "deploy/prometheus/alerts.yaml");
    await writeFile(
      file,
      text(join("deploy", name)).replace("/etc/prometheus/alerts.yaml", alerts),
    );
    // Without the check that credentials and authorities exist, which this machine does not have.
    await run(promtool ?? "", ["check", "config", "--syntax-only", file], { timeout: 160_000 });
  },
);
