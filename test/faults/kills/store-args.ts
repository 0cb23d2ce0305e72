import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fields } from "../replica.ts";
import type { Seeded } from "../seeded.ts";
import { resource } from "../wire.ts";

/** The arguments of `serve` with its data in a folder, which only sometimes waits for the disk. */
export async function storeArgs(folder: string): Promise<(random: Seeded) => readonly string[]> {
  const config = join(folder, "config.yaml");
  // JSON is YAML.
  const resources = [{ name: resource, codec: "json", fields }];
  await writeFile(config, JSON.stringify({ resources }));
  return (random) => [
    ...["--config", config, "--data", join(folder, "store")],
    ...["--log-level", "warn", "--consistency-interval", "0s"],
    ...["--data-sync", random.chance(0.7) ? "full" : "off"],
  ];
}
