import type { Benchmark } from "./benchmark.ts";
import { withLoad } from "./load.ts";
import { tableLine } from "./report.ts";
import { withServers } from "./servers.ts";

/** How fast the puts follow one another that give V8 what it needs to optimize all that runs once per put. */
const warmUpPerSecond = 100;
const widths = [22, 14];

/** What an event costs in the first minute after a start, when V8 still interprets most of what runs once per put. */
export const firstMinute: Benchmark = {
  name: "first-minute",
  options: {
    streams: "1000",
    connections: "20",
    "value-bytes": "256",
    "puts-per-second": "30",
    seconds: "60",
    "warm-up-puts": "3000",
  },
  async run(settings, say) {
    const perSecond = settings.number("puts-per-second");
    const count = perSecond * settings.number("seconds");
    say(tableLine(["", "CPU µs/event"], widths));
    const results = await withServers("watch-fanout", (servers) =>
      withLoad(async (load) => {
        const streams = settings.number("streams");
        const connections = settings.number("connections");
        await load.open({ target: "watch-fanout", url: servers.url, connections, streams });
        await load.connectWriter(servers.etcd.url, settings.number("value-bytes"));
        const measured = async (puts: number, rate: number): Promise<number> => {
          const before = servers.cpu().front;
          const { first, sentAt } = await load.writePaced(rate, puts);
          await load.completedBetween(first, first + sentAt.length);
          return ((servers.cpu().front - before) * 1e6) / (puts * streams);
        };
        const cold = await measured(count, perSecond);
        say(tableLine(["first minute", cold.toFixed(3)], widths));
        await measured(settings.number("warm-up-puts"), warmUpPerSecond);
        const warm = await measured(count, perSecond);
        say(tableLine(["warmed", warm.toFixed(3)], widths));
        return { cold, warm };
      }),
    );
    const ratio = results.cold / results.warm;
    const rows = [
      {
        what: `CPU per event in the first ${settings.number("seconds")} s, ${perSecond} puts/s`,
        unit: "µs",
        watchFanout: results.cold,
        ratios: [{ of: "warmed", value: ratio }],
        goal: "1.2 × warmed",
        met: ratio <= 1.2,
      },
    ];
    return { rows, results: [results] };
  },
  onlyByName: true,
};
