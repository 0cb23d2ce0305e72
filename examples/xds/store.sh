#!/bin/sh
# Stores what xDS needs to route calls for xds:///greeter, and those that come to port 10000 of an Envoy, to the instances of
# the service "greeter". docs/xds.md says how it is used.
set -eu
put="${WATCH_FANOUT:-watch-fanout} put"
api=type.googleapis.com/envoy

$put -r clusters greeter '{
  "@type": "'$api'.config.cluster.v3.Cluster",
  "name": "greeter",
  "type": "EDS",
  "eds_cluster_config": { "eds_config": { "ads": {}, "resource_api_version": "V3" } },
  "typed_extension_protocol_options": {
    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
      "@type": "'$api'.extensions.upstreams.http.v3.HttpProtocolOptions",
      "explicit_http_config": { "http2_protocol_options": {} }
    }
  }
}'

$put -r routes greeter '{
  "@type": "'$api'.config.route.v3.RouteConfiguration",
  "name": "greeter",
  "virtual_hosts": [
    {
      "name": "greeter",
      "domains": ["*"],
      "routes": [
        {
          "match": { "prefix": "" },
          "route": { "cluster": "greeter", "retry_policy": { "retry_on": "unavailable", "num_retries": 3 } }
        }
      ]
    }
  ]
}'

# Clients of gRPC ask for the listener of the name that they call. It has no address, so Envoy ignores it.
$put -r listeners greeter '{
  "@type": "'$api'.config.listener.v3.Listener",
  "name": "greeter",
  "api_listener": {
    "api_listener": {
      "@type": "'$api'.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
      "rds": {
        "config_source": { "ads": {}, "resource_api_version": "V3" },
        "route_config_name": "greeter"
      },
      "http_filters": [
        {
          "name": "envoy.filters.http.router",
          "typed_config": { "@type": "'$api'.extensions.filters.http.router.v3.Router" }
        }
      ]
    }
  }
}'

$put -r listeners envoy '{
  "@type": "'$api'.config.listener.v3.Listener",
  "name": "envoy",
  "address": { "socket_address": { "address": "127.0.0.1", "port_value": 10000 } },
  "filter_chains": [
    {
      "filters": [
        {
          "name": "envoy.filters.network.http_connection_manager",
          "typed_config": {
            "@type": "'$api'.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": "greeter",
            "rds": {
              "config_source": { "ads": {}, "resource_api_version": "V3" },
              "route_config_name": "greeter"
            },
            "http_filters": [
              {
                "name": "envoy.filters.http.router",
                "typed_config": { "@type": "'$api'.extensions.filters.http.router.v3.Router" }
              }
            ]
          }
        }
      ]
    }
  ]
}'
