/**
 * A resolver for grpc-js: channels to `watchfanout:///NAMESPACE/NAME` go to the addresses in the object of that key
 * in `endpoints`, and follow it when it changes. While the service is away they keep the addresses that they have.
 * grpc-js calls the interface experimental; this is of 1.14.
 */
import { experimental, status } from "@grpc/grpc-js";
import { type Client, type Interruption, jsonValues } from "watch-fanout/client";
import { z } from "zod";

const Endpoints = z.object({ addresses: z.array(z.string()) });

/** Makes `watchfanout:///KEY` a name for channels of this process. The client is to be closed after these. */
export function registerWatchFanoutResolver(client: Client, resource: string = "endpoints"): void {
  const endpoints = client.resource(resource, jsonValues(Endpoints.parse), {
    onUndecodable: (failure) => process.emitWarning(failure),
  });

  const onInterruption = ({ error }: Interruption) => process.emitWarning(error.message);

  class EndpointsResolver implements experimental.Resolver {
    readonly #key: string;
    readonly #listener: experimental.ResolverListener;
    #following: AbortController | undefined;

    static getDefaultAuthority(target: experimental.GrpcUri): string {
      return nameOf(target.path);
    }

    constructor(target: experimental.GrpcUri, listener: experimental.ResolverListener) {
      this.#key = target.path;
      this.#listener = listener;
    }

    /** Begins to follow the endpoints. While it does, there is nothing newer to be had by asking. */
    updateResolution(): void {
      if (this.#following !== undefined) return;
      this.#following = new AbortController();
      void this.#follow(this.#following.signal);
    }

    /** A channel that is idle does this too, and asks again when it is needed. */
    destroy(): void {
      this.#following?.abort();
      this.#following = undefined;
    }

    async #follow(signal: AbortSignal): Promise<void> {
      try {
        for await (const object of endpoints.follow(this.#key, { signal, onInterruption })) {
          if (!signal.aborted) this.#tell(object?.value.addresses ?? []);
        }
      } catch (error) {
        if (signal.aborted) return;
        // What only another key, another client or more rights can mend. Whoever asks again may have that.
        this.#following = undefined;
        this.#fail(error instanceof Error ? error.message : String(error));
      }
    }

    #tell(addresses: readonly string[]): void {
      const list = addresses.flatMap(addressOf).map((address) => ({ addresses: [address] }));
      this.#listener(experimental.statusOrFromValue(list), {}, null, "");
      if (list.length > 0) return;
      // With an empty list alone, calls would wait for their deadline: now they fail, unless they wait for ready.
      this.#fail(`There are no addresses in ${resource} ${JSON.stringify(this.#key)}.`);
    }

    #fail(details: string): void {
      const none = experimental.statusOrFromError<experimental.Endpoint[]>({
        code: status.UNAVAILABLE,
        details,
      });
      this.#listener(none, {}, null, "");
    }
  }

  experimental.registerResolver("watchfanout", EndpointsResolver);
}

/** What comes after the namespace. */
function nameOf(key: string): string {
  return key.slice(key.indexOf("/") + 1);
}

/** Passes over what is not HOST:PORT, with a warning: the other addresses are as good as before. */
function addressOf(text: string): { host: string; port: number }[] {
  const { host, port } = experimental.splitHostPort(text) ?? {};
  if (host !== undefined && port !== undefined) return [{ host, port }];
  process.emitWarning(`${JSON.stringify(text)} is no HOST:PORT.`);
  return [];
}
