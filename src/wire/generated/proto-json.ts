/** All protos, as protobufjs writes them in JSON: nothing is read or parsed at import. */
export const protoJson: object = {
  "nested": {
    "grpc": {
      "nested": {
        "health": {
          "nested": {
            "v1": {
              "nested": {
                "Health": {
                  "methods": {
                    "Check": {
                      "requestType": "HealthCheckRequest",
                      "responseType": "HealthCheckResponse"
                    },
                    "List": {
                      "requestType": "HealthListRequest",
                      "responseType": "HealthListResponse"
                    },
                    "Watch": {
                      "requestType": "HealthCheckRequest",
                      "responseType": "HealthCheckResponse",
                      "responseStream": true
                    }
                  }
                },
                "HealthCheckRequest": {
                  "fields": {
                    "service": {
                      "type": "string",
                      "id": 1
                    }
                  }
                },
                "HealthCheckResponse": {
                  "fields": {
                    "status": {
                      "type": "ServingStatus",
                      "id": 1
                    }
                  },
                  "nested": {
                    "ServingStatus": {
                      "values": {
                        "UNKNOWN": 0,
                        "SERVING": 1,
                        "NOT_SERVING": 2,
                        "SERVICE_UNKNOWN": 3
                      }
                    }
                  }
                },
                "HealthListRequest": {
                  "fields": {}
                },
                "HealthListResponse": {
                  "fields": {
                    "statuses": {
                      "keyType": "string",
                      "type": "HealthCheckResponse",
                      "id": 1
                    }
                  }
                }
              }
            }
          }
        },
        "reflection": {
          "nested": {
            "v1": {
              "nested": {
                "ServerReflection": {
                  "methods": {
                    "ServerReflectionInfo": {
                      "requestType": "ServerReflectionRequest",
                      "requestStream": true,
                      "responseType": "ServerReflectionResponse",
                      "responseStream": true
                    }
                  }
                },
                "ServerReflectionRequest": {
                  "oneofs": {
                    "message_request": {
                      "oneof": [
                        "file_by_filename",
                        "file_containing_symbol",
                        "file_containing_extension",
                        "all_extension_numbers_of_type",
                        "list_services"
                      ]
                    }
                  },
                  "fields": {
                    "host": {
                      "type": "string",
                      "id": 1
                    },
                    "file_by_filename": {
                      "type": "string",
                      "id": 3
                    },
                    "file_containing_symbol": {
                      "type": "string",
                      "id": 4
                    },
                    "file_containing_extension": {
                      "type": "ExtensionRequest",
                      "id": 5
                    },
                    "all_extension_numbers_of_type": {
                      "type": "string",
                      "id": 6
                    },
                    "list_services": {
                      "type": "string",
                      "id": 7
                    }
                  }
                },
                "ExtensionRequest": {
                  "fields": {
                    "containing_type": {
                      "type": "string",
                      "id": 1
                    },
                    "extension_number": {
                      "type": "int32",
                      "id": 2
                    }
                  }
                },
                "ServerReflectionResponse": {
                  "oneofs": {
                    "message_response": {
                      "oneof": [
                        "file_descriptor_response",
                        "all_extension_numbers_response",
                        "list_services_response",
                        "error_response"
                      ]
                    }
                  },
                  "fields": {
                    "valid_host": {
                      "type": "string",
                      "id": 1
                    },
                    "original_request": {
                      "type": "ServerReflectionRequest",
                      "id": 2
                    },
                    "file_descriptor_response": {
                      "type": "FileDescriptorResponse",
                      "id": 4
                    },
                    "all_extension_numbers_response": {
                      "type": "ExtensionNumberResponse",
                      "id": 5
                    },
                    "list_services_response": {
                      "type": "ListServiceResponse",
                      "id": 6
                    },
                    "error_response": {
                      "type": "ErrorResponse",
                      "id": 7
                    }
                  }
                },
                "FileDescriptorResponse": {
                  "fields": {
                    "file_descriptor_proto": {
                      "rule": "repeated",
                      "type": "bytes",
                      "id": 1
                    }
                  }
                },
                "ExtensionNumberResponse": {
                  "fields": {
                    "base_type_name": {
                      "type": "string",
                      "id": 1
                    },
                    "extension_number": {
                      "rule": "repeated",
                      "type": "int32",
                      "id": 2
                    }
                  }
                },
                "ListServiceResponse": {
                  "fields": {
                    "service": {
                      "rule": "repeated",
                      "type": "ServiceResponse",
                      "id": 1
                    }
                  }
                },
                "ServiceResponse": {
                  "fields": {
                    "name": {
                      "type": "string",
                      "id": 1
                    }
                  }
                },
                "ErrorResponse": {
                  "fields": {
                    "error_code": {
                      "type": "int32",
                      "id": 1
                    },
                    "error_message": {
                      "type": "string",
                      "id": 2
                    }
                  }
                }
              }
            },
            "v1alpha": {
              "nested": {
                "ServerReflection": {
                  "methods": {
                    "ServerReflectionInfo": {
                      "requestType": "ServerReflectionRequest",
                      "requestStream": true,
                      "responseType": "ServerReflectionResponse",
                      "responseStream": true
                    }
                  }
                },
                "ServerReflectionRequest": {
                  "oneofs": {
                    "message_request": {
                      "oneof": [
                        "file_by_filename",
                        "file_containing_symbol",
                        "file_containing_extension",
                        "all_extension_numbers_of_type",
                        "list_services"
                      ]
                    }
                  },
                  "fields": {
                    "host": {
                      "type": "string",
                      "id": 1
                    },
                    "file_by_filename": {
                      "type": "string",
                      "id": 3
                    },
                    "file_containing_symbol": {
                      "type": "string",
                      "id": 4
                    },
                    "file_containing_extension": {
                      "type": "ExtensionRequest",
                      "id": 5
                    },
                    "all_extension_numbers_of_type": {
                      "type": "string",
                      "id": 6
                    },
                    "list_services": {
                      "type": "string",
                      "id": 7
                    }
                  }
                },
                "ExtensionRequest": {
                  "fields": {
                    "containing_type": {
                      "type": "string",
                      "id": 1
                    },
                    "extension_number": {
                      "type": "int32",
                      "id": 2
                    }
                  }
                },
                "ServerReflectionResponse": {
                  "oneofs": {
                    "message_response": {
                      "oneof": [
                        "file_descriptor_response",
                        "all_extension_numbers_response",
                        "list_services_response",
                        "error_response"
                      ]
                    }
                  },
                  "fields": {
                    "valid_host": {
                      "type": "string",
                      "id": 1
                    },
                    "original_request": {
                      "type": "ServerReflectionRequest",
                      "id": 2
                    },
                    "file_descriptor_response": {
                      "type": "FileDescriptorResponse",
                      "id": 4
                    },
                    "all_extension_numbers_response": {
                      "type": "ExtensionNumberResponse",
                      "id": 5
                    },
                    "list_services_response": {
                      "type": "ListServiceResponse",
                      "id": 6
                    },
                    "error_response": {
                      "type": "ErrorResponse",
                      "id": 7
                    }
                  }
                },
                "FileDescriptorResponse": {
                  "fields": {
                    "file_descriptor_proto": {
                      "rule": "repeated",
                      "type": "bytes",
                      "id": 1
                    }
                  }
                },
                "ExtensionNumberResponse": {
                  "fields": {
                    "base_type_name": {
                      "type": "string",
                      "id": 1
                    },
                    "extension_number": {
                      "rule": "repeated",
                      "type": "int32",
                      "id": 2
                    }
                  }
                },
                "ListServiceResponse": {
                  "fields": {
                    "service": {
                      "rule": "repeated",
                      "type": "ServiceResponse",
                      "id": 1
                    }
                  }
                },
                "ServiceResponse": {
                  "fields": {
                    "name": {
                      "type": "string",
                      "id": 1
                    }
                  }
                },
                "ErrorResponse": {
                  "fields": {
                    "error_code": {
                      "type": "int32",
                      "id": 1
                    },
                    "error_message": {
                      "type": "string",
                      "id": 2
                    }
                  }
                }
              }
            }
          }
        }
      }
    },
    "watchfanout": {
      "nested": {
        "v1": {
          "options": {
            "go_package": "watchfanout/v1;watchfanoutv1",
            "java_package": "watchfanout.v1"
          },
          "nested": {
            "ErrorReason": {
              "values": {
                "ERROR_REASON_UNSPECIFIED": 0,
                "INVALID_REQUEST": 1,
                "UNKNOWN_RESOURCE": 2,
                "OBJECT_NOT_FOUND": 3,
                "UNKNOWN_WATCH": 4,
                "WATCH_ID_TAKEN": 5,
                "REVISION_TOO_OLD": 6,
                "REVISION_TOO_NEW": 7,
                "HISTORY_CHANGED": 8,
                "HISTORY_LOST": 9,
                "SLOW_CONSUMER": 10,
                "REVISION_CONFLICT": 11,
                "OUTCOME_UNKNOWN": 12,
                "LEASE_NOT_FOUND": 13,
                "VALUE_TOO_LARGE": 14,
                "STORAGE_FULL": 15,
                "UPSTREAM_DENIED": 16,
                "UPSTREAM_UNAVAILABLE": 17,
                "INTERNAL": 18,
                "NOT_READY": 19,
                "DRAINING": 20,
                "TOO_MANY_STREAMS": 21,
                "OVERLOADED": 22,
                "UNAUTHENTICATED": 23,
                "PERMISSION_DENIED": 24,
                "UNIMPLEMENTED": 25,
                "DEADLINE_EXCEEDED": 26,
                "LIST_TOO_LARGE": 27,
                "RESUME_LIMITED": 28,
                "REQUEST_ID_REUSED": 29,
                "TRANSACTION_TOO_LARGE": 30,
                "TOO_MANY_LEASES": 31
              }
            },
            "LeaseService": {
              "methods": {
                "Grant": {
                  "requestType": "GrantRequest",
                  "responseType": "GrantResponse"
                },
                "KeepAlive": {
                  "requestType": "KeepAliveRequest",
                  "requestStream": true,
                  "responseType": "KeepAliveResponse",
                  "responseStream": true
                },
                "Revoke": {
                  "requestType": "RevokeRequest",
                  "responseType": "RevokeResponse"
                },
                "TimeToLive": {
                  "requestType": "TimeToLiveRequest",
                  "responseType": "TimeToLiveResponse"
                }
              }
            },
            "GrantRequest": {
              "fields": {
                "ttl": {
                  "type": "google.protobuf.Duration",
                  "id": 1
                }
              }
            },
            "GrantResponse": {
              "fields": {
                "lease": {
                  "type": "int64",
                  "id": 1
                },
                "ttl": {
                  "type": "google.protobuf.Duration",
                  "id": 2
                }
              }
            },
            "KeepAliveRequest": {
              "fields": {
                "leases": {
                  "rule": "repeated",
                  "type": "int64",
                  "id": 1
                }
              }
            },
            "KeepAliveResponse": {
              "fields": {
                "renewals": {
                  "rule": "repeated",
                  "type": "Renewal",
                  "id": 1
                }
              }
            },
            "Renewal": {
              "fields": {
                "lease": {
                  "type": "int64",
                  "id": 1
                },
                "ttl": {
                  "type": "google.protobuf.Duration",
                  "id": 2
                },
                "error": {
                  "type": "google.rpc.Status",
                  "id": 3
                }
              }
            },
            "RevokeRequest": {
              "fields": {
                "lease": {
                  "type": "int64",
                  "id": 1
                }
              }
            },
            "RevokeResponse": {
              "fields": {}
            },
            "TimeToLiveRequest": {
              "fields": {
                "lease": {
                  "type": "int64",
                  "id": 1
                },
                "objects": {
                  "type": "bool",
                  "id": 2
                }
              }
            },
            "TimeToLiveResponse": {
              "fields": {
                "ttl": {
                  "type": "google.protobuf.Duration",
                  "id": 1
                },
                "granted_ttl": {
                  "type": "google.protobuf.Duration",
                  "id": 2
                },
                "objects": {
                  "rule": "repeated",
                  "type": "ObjectName",
                  "id": 3
                },
                "others": {
                  "type": "int64",
                  "id": 4
                }
              }
            },
            "ListWatchService": {
              "methods": {
                "Get": {
                  "requestType": "GetRequest",
                  "responseType": "GetResponse"
                },
                "BatchGet": {
                  "requestType": "BatchGetRequest",
                  "responseType": "BatchGetResponse"
                },
                "List": {
                  "requestType": "ListRequest",
                  "responseType": "ListResponse"
                },
                "Watch": {
                  "requestType": "WatchRequest",
                  "responseType": "WatchResponse",
                  "responseStream": true
                },
                "Subscribe": {
                  "requestType": "SubscribeRequest",
                  "requestStream": true,
                  "responseType": "SubscribeResponse",
                  "responseStream": true
                },
                "History": {
                  "requestType": "HistoryRequest",
                  "responseType": "HistoryResponse"
                },
                "Resources": {
                  "requestType": "ResourcesRequest",
                  "responseType": "ResourcesResponse"
                }
              }
            },
            "RevisionMatch": {
              "values": {
                "REVISION_MATCH_UNSPECIFIED": 0,
                "REVISION_MATCH_LINEARIZABLE": 1,
                "REVISION_MATCH_ANY": 2,
                "REVISION_MATCH_NOT_OLDER_THAN": 3,
                "REVISION_MATCH_EXACT": 4
              }
            },
            "GetRequest": {
              "fields": {
                "resource": {
                  "type": "string",
                  "id": 1
                },
                "key": {
                  "type": "string",
                  "id": 2
                },
                "revision_match": {
                  "type": "RevisionMatch",
                  "id": 3
                },
                "revision": {
                  "type": "int64",
                  "id": 4
                },
                "history_id": {
                  "type": "string",
                  "id": 5
                },
                "read_mask": {
                  "type": "google.protobuf.FieldMask",
                  "id": 6
                },
                "view": {
                  "type": "View",
                  "id": 7
                }
              }
            },
            "GetResponse": {
              "fields": {
                "revision": {
                  "type": "int64",
                  "id": 1
                },
                "object": {
                  "type": "StoredObject",
                  "id": 2
                },
                "history_id": {
                  "type": "string",
                  "id": 3
                },
                "stale_for": {
                  "type": "google.protobuf.Duration",
                  "id": 4
                }
              }
            },
            "BatchGetRequest": {
              "fields": {
                "objects": {
                  "rule": "repeated",
                  "type": "ObjectName",
                  "id": 1
                },
                "revision_match": {
                  "type": "RevisionMatch",
                  "id": 2
                },
                "revision": {
                  "type": "int64",
                  "id": 3
                },
                "history_id": {
                  "type": "string",
                  "id": 4
                }
              }
            },
            "ObjectName": {
              "fields": {
                "resource": {
                  "type": "string",
                  "id": 1
                },
                "key": {
                  "type": "string",
                  "id": 2
                }
              }
            },
            "BatchGetResponse": {
              "fields": {
                "revision": {
                  "type": "int64",
                  "id": 1
                },
                "objects": {
                  "rule": "repeated",
                  "type": "FoundObject",
                  "id": 2
                },
                "history_id": {
                  "type": "string",
                  "id": 3
                },
                "stale_for": {
                  "type": "google.protobuf.Duration",
                  "id": 4
                }
              }
            },
            "FoundObject": {
              "fields": {
                "object": {
                  "type": "StoredObject",
                  "id": 1
                }
              }
            },
            "View": {
              "values": {
                "VIEW_UNSPECIFIED": 0,
                "VIEW_FULL": 1,
                "VIEW_KEYS": 2,
                "VIEW_COUNT": 3,
                "VIEW_ATTRIBUTES": 4
              }
            },
            "Shard": {
              "fields": {
                "ranges": {
                  "rule": "repeated",
                  "type": "HashRange",
                  "id": 1
                }
              }
            },
            "HashRange": {
              "fields": {
                "first": {
                  "type": "fixed64",
                  "id": 1
                },
                "last": {
                  "type": "fixed64",
                  "id": 2
                }
              }
            },
            "Order": {
              "values": {
                "ORDER_UNSPECIFIED": 0,
                "ORDER_KEY_ASCENDING": 1,
                "ORDER_KEY_DESCENDING": 2,
                "ORDER_MOD_REVISION_ASCENDING": 3,
                "ORDER_MOD_REVISION_DESCENDING": 4,
                "ORDER_CREATE_REVISION_ASCENDING": 5,
                "ORDER_CREATE_REVISION_DESCENDING": 6
              }
            },
            "ListRequest": {
              "fields": {
                "resource": {
                  "type": "string",
                  "id": 1
                },
                "prefix": {
                  "type": "string",
                  "id": 2
                },
                "label_selector": {
                  "type": "string",
                  "id": 3
                },
                "field_selector": {
                  "type": "string",
                  "id": 4
                },
                "revision_match": {
                  "type": "RevisionMatch",
                  "id": 5
                },
                "revision": {
                  "type": "int64",
                  "id": 6
                },
                "page_size": {
                  "type": "int32",
                  "id": 7
                },
                "page_token": {
                  "type": "string",
                  "id": 8
                },
                "history_id": {
                  "type": "string",
                  "id": 9
                },
                "view": {
                  "type": "View",
                  "id": 10
                },
                "shard": {
                  "type": "Shard",
                  "id": 11
                },
                "read_mask": {
                  "type": "google.protobuf.FieldMask",
                  "id": 12
                },
                "start_key": {
                  "type": "string",
                  "id": 13
                },
                "end_key": {
                  "type": "string",
                  "id": 14
                },
                "order": {
                  "type": "Order",
                  "id": 15
                }
              }
            },
            "ListResponse": {
              "oneofs": {
                "_remaining_item_count": {
                  "oneof": [
                    "remaining_item_count"
                  ]
                }
              },
              "fields": {
                "revision": {
                  "type": "int64",
                  "id": 1
                },
                "items": {
                  "rule": "repeated",
                  "type": "StoredObject",
                  "id": 2
                },
                "next_page_token": {
                  "type": "string",
                  "id": 3
                },
                "remaining_item_count": {
                  "type": "int64",
                  "id": 4,
                  "options": {
                    "proto3_optional": true
                  }
                },
                "history_id": {
                  "type": "string",
                  "id": 5
                },
                "stale_for": {
                  "type": "google.protobuf.Duration",
                  "id": 6
                }
              }
            },
            "Delivery": {
              "values": {
                "DELIVERY_UNSPECIFIED": 0,
                "DELIVERY_EVERY_EVENT": 1,
                "DELIVERY_LATEST_STATE": 2
              }
            },
            "KeyRange": {
              "fields": {
                "start_key": {
                  "type": "string",
                  "id": 1
                },
                "end_key": {
                  "type": "string",
                  "id": 2
                }
              }
            },
            "WatchRequest": {
              "oneofs": {
                "scope": {
                  "oneof": [
                    "key",
                    "prefix",
                    "range"
                  ]
                },
                "_after_revision": {
                  "oneof": [
                    "after_revision"
                  ]
                }
              },
              "fields": {
                "resource": {
                  "type": "string",
                  "id": 1
                },
                "key": {
                  "type": "string",
                  "id": 2
                },
                "prefix": {
                  "type": "string",
                  "id": 3
                },
                "range": {
                  "type": "KeyRange",
                  "id": 17
                },
                "label_selector": {
                  "type": "string",
                  "id": 4
                },
                "field_selector": {
                  "type": "string",
                  "id": 5
                },
                "after_revision": {
                  "type": "int64",
                  "id": 6,
                  "options": {
                    "proto3_optional": true
                  }
                },
                "send_initial_events": {
                  "type": "bool",
                  "id": 7
                },
                "delivery": {
                  "type": "Delivery",
                  "id": 8
                },
                "include_previous": {
                  "type": "bool",
                  "id": 9
                },
                "bookmark_interval": {
                  "type": "google.protobuf.Duration",
                  "id": 10
                },
                "history_id": {
                  "type": "string",
                  "id": 11
                },
                "eager_bookmarks": {
                  "type": "bool",
                  "id": 12
                },
                "view": {
                  "type": "View",
                  "id": 13
                },
                "event_types": {
                  "rule": "repeated",
                  "type": "EventType",
                  "id": 14
                },
                "shard": {
                  "type": "Shard",
                  "id": 15
                },
                "read_mask": {
                  "type": "google.protobuf.FieldMask",
                  "id": 16
                }
              }
            },
            "EventType": {
              "values": {
                "EVENT_TYPE_UNSPECIFIED": 0,
                "EVENT_TYPE_ADDED": 1,
                "EVENT_TYPE_MODIFIED": 2,
                "EVENT_TYPE_DELETED": 3
              }
            },
            "Event": {
              "fields": {
                "type": {
                  "type": "EventType",
                  "id": 1
                },
                "object": {
                  "type": "StoredObject",
                  "id": 2
                },
                "previous": {
                  "type": "StoredObject",
                  "id": 3
                }
              }
            },
            "WatchResponse": {
              "oneofs": {
                "_revision": {
                  "oneof": [
                    "revision"
                  ]
                }
              },
              "fields": {
                "revision": {
                  "type": "int64",
                  "id": 1,
                  "options": {
                    "proto3_optional": true
                  }
                },
                "events": {
                  "rule": "repeated",
                  "type": "Event",
                  "id": 2
                },
                "initial_events_end": {
                  "type": "bool",
                  "id": 3
                },
                "history_id": {
                  "type": "string",
                  "id": 4
                }
              }
            },
            "SubscribeRequest": {
              "oneofs": {
                "request": {
                  "oneof": [
                    "add",
                    "remove",
                    "grant",
                    "progress"
                  ]
                }
              },
              "fields": {
                "add": {
                  "type": "AddWatch",
                  "id": 1
                },
                "remove": {
                  "type": "RemoveWatch",
                  "id": 2
                },
                "grant": {
                  "type": "GrantCredit",
                  "id": 3
                },
                "progress": {
                  "type": "RequestProgress",
                  "id": 4
                }
              }
            },
            "AddWatch": {
              "oneofs": {
                "_messages": {
                  "oneof": [
                    "messages"
                  ]
                },
                "_bytes": {
                  "oneof": [
                    "bytes"
                  ]
                }
              },
              "fields": {
                "id": {
                  "type": "int64",
                  "id": 1
                },
                "watch": {
                  "type": "WatchRequest",
                  "id": 2
                },
                "messages": {
                  "type": "int64",
                  "id": 3,
                  "options": {
                    "proto3_optional": true
                  }
                },
                "bytes": {
                  "type": "int64",
                  "id": 4,
                  "options": {
                    "proto3_optional": true
                  }
                }
              }
            },
            "RemoveWatch": {
              "fields": {
                "id": {
                  "type": "int64",
                  "id": 1
                }
              }
            },
            "GrantCredit": {
              "fields": {
                "id": {
                  "type": "int64",
                  "id": 1
                },
                "messages": {
                  "type": "int64",
                  "id": 2
                },
                "bytes": {
                  "type": "int64",
                  "id": 3
                }
              }
            },
            "RequestProgress": {
              "fields": {
                "id": {
                  "type": "int64",
                  "id": 1
                },
                "tag": {
                  "type": "int64",
                  "id": 2
                }
              }
            },
            "SubscribeResponse": {
              "oneofs": {
                "response": {
                  "oneof": [
                    "watch",
                    "ended",
                    "refused",
                    "progress"
                  ]
                }
              },
              "fields": {
                "id": {
                  "type": "int64",
                  "id": 1
                },
                "watch": {
                  "type": "WatchResponse",
                  "id": 2
                },
                "ended": {
                  "type": "google.rpc.Status",
                  "id": 3
                },
                "refused": {
                  "type": "google.rpc.Status",
                  "id": 4
                },
                "progress": {
                  "type": "Progress",
                  "id": 5
                }
              }
            },
            "Progress": {
              "fields": {
                "revision": {
                  "type": "int64",
                  "id": 1
                },
                "tag": {
                  "type": "int64",
                  "id": 2
                }
              }
            },
            "HistoryRequest": {
              "fields": {
                "resource": {
                  "type": "string",
                  "id": 1
                },
                "key": {
                  "type": "string",
                  "id": 2
                },
                "revision": {
                  "type": "int64",
                  "id": 3
                },
                "page_size": {
                  "type": "int32",
                  "id": 4
                },
                "page_token": {
                  "type": "string",
                  "id": 5
                },
                "history_id": {
                  "type": "string",
                  "id": 6
                },
                "view": {
                  "type": "View",
                  "id": 7
                }
              }
            },
            "HistoryResponse": {
              "fields": {
                "revision": {
                  "type": "int64",
                  "id": 1
                },
                "events": {
                  "rule": "repeated",
                  "type": "Event",
                  "id": 2
                },
                "next_page_token": {
                  "type": "string",
                  "id": 3
                },
                "history_id": {
                  "type": "string",
                  "id": 4
                },
                "end": {
                  "type": "HistoryEnd",
                  "id": 5
                },
                "oldest_revision": {
                  "type": "int64",
                  "id": 6
                }
              }
            },
            "HistoryEnd": {
              "values": {
                "HISTORY_END_UNSPECIFIED": 0,
                "HISTORY_END_CREATION": 1,
                "HISTORY_END_COMPACTION": 2,
                "HISTORY_END_LIMIT": 3
              }
            },
            "ResourcesRequest": {
              "fields": {
                "after_name": {
                  "type": "string",
                  "id": 1
                },
                "check_path": {
                  "type": "bool",
                  "id": 2
                },
                "page_size": {
                  "type": "int32",
                  "id": 3
                },
                "page_token": {
                  "type": "string",
                  "id": 4
                }
              }
            },
            "ResourcesResponse": {
              "fields": {
                "resources": {
                  "rule": "repeated",
                  "type": "Resource",
                  "id": 1
                },
                "has_more": {
                  "type": "bool",
                  "id": 2
                },
                "next_page_token": {
                  "type": "string",
                  "id": 3
                }
              }
            },
            "Codec": {
              "values": {
                "CODEC_UNSPECIFIED": 0,
                "CODEC_OPAQUE": 1,
                "CODEC_JSON": 2,
                "CODEC_PROTOBUF": 3
              }
            },
            "Resource": {
              "fields": {
                "name": {
                  "type": "string",
                  "id": 1
                },
                "codec": {
                  "type": "Codec",
                  "id": 2
                },
                "cached": {
                  "type": "bool",
                  "id": 3
                },
                "revision": {
                  "type": "int64",
                  "id": 4
                },
                "history_id": {
                  "type": "string",
                  "id": 5
                },
                "readable_in_full": {
                  "type": "bool",
                  "id": 6
                },
                "stale_for": {
                  "type": "google.protobuf.Duration",
                  "id": 7
                },
                "etcd_keys": {
                  "type": "EtcdKeys",
                  "id": 8
                },
                "fields": {
                  "rule": "repeated",
                  "type": "string",
                  "id": 9
                },
                "indexed_fields": {
                  "rule": "repeated",
                  "type": "string",
                  "id": 10
                },
                "oldest_revision": {
                  "type": "int64",
                  "id": 11
                },
                "views": {
                  "rule": "repeated",
                  "type": "View",
                  "id": 12
                }
              }
            },
            "EtcdKeys": {
              "fields": {
                "prefix": {
                  "type": "string",
                  "id": 1
                },
                "history_key": {
                  "type": "string",
                  "id": 2
                }
              }
            },
            "StoredObject": {
              "fields": {
                "key": {
                  "type": "string",
                  "id": 1
                },
                "value": {
                  "type": "bytes",
                  "id": 2
                },
                "create_revision": {
                  "type": "int64",
                  "id": 3
                },
                "mod_revision": {
                  "type": "int64",
                  "id": 4
                },
                "version": {
                  "type": "int64",
                  "id": 5
                },
                "lease": {
                  "type": "int64",
                  "id": 6
                },
                "attributes": {
                  "type": "Attributes",
                  "id": 7
                },
                "undecodable": {
                  "type": "bool",
                  "id": 8
                }
              }
            },
            "Attributes": {
              "fields": {
                "labels": {
                  "keyType": "string",
                  "type": "string",
                  "id": 1
                },
                "fields": {
                  "keyType": "string",
                  "type": "string",
                  "id": 2
                }
              }
            },
            "WriteService": {
              "methods": {
                "Put": {
                  "requestType": "PutRequest",
                  "responseType": "PutResponse"
                },
                "Delete": {
                  "requestType": "DeleteRequest",
                  "responseType": "DeleteResponse"
                },
                "DeletePrefix": {
                  "requestType": "DeletePrefixRequest",
                  "responseType": "DeletePrefixResponse"
                },
                "Transact": {
                  "requestType": "TransactRequest",
                  "responseType": "TransactResponse"
                }
              }
            },
            "PutRequest": {
              "oneofs": {
                "_expected_mod_revision": {
                  "oneof": [
                    "expected_mod_revision"
                  ]
                }
              },
              "fields": {
                "resource": {
                  "type": "string",
                  "id": 1
                },
                "key": {
                  "type": "string",
                  "id": 2
                },
                "value": {
                  "type": "bytes",
                  "id": 3
                },
                "expected_mod_revision": {
                  "type": "int64",
                  "id": 4,
                  "options": {
                    "proto3_optional": true
                  }
                },
                "lease": {
                  "type": "int64",
                  "id": 5
                },
                "ttl": {
                  "type": "google.protobuf.Duration",
                  "id": 6
                },
                "history_id": {
                  "type": "string",
                  "id": 7
                },
                "return_current": {
                  "type": "bool",
                  "id": 8
                },
                "validate_only": {
                  "type": "bool",
                  "id": 9
                },
                "request_id": {
                  "type": "string",
                  "id": 10
                }
              }
            },
            "PutResponse": {
              "fields": {
                "revision": {
                  "type": "int64",
                  "id": 1
                },
                "object": {
                  "type": "StoredObject",
                  "id": 2
                },
                "history_id": {
                  "type": "string",
                  "id": 3
                },
                "conflict": {
                  "type": "bool",
                  "id": 4
                }
              }
            },
            "DeleteRequest": {
              "oneofs": {
                "_expected_mod_revision": {
                  "oneof": [
                    "expected_mod_revision"
                  ]
                }
              },
              "fields": {
                "resource": {
                  "type": "string",
                  "id": 1
                },
                "key": {
                  "type": "string",
                  "id": 2
                },
                "expected_mod_revision": {
                  "type": "int64",
                  "id": 3,
                  "options": {
                    "proto3_optional": true
                  }
                },
                "history_id": {
                  "type": "string",
                  "id": 4
                },
                "return_current": {
                  "type": "bool",
                  "id": 5
                },
                "validate_only": {
                  "type": "bool",
                  "id": 6
                },
                "request_id": {
                  "type": "string",
                  "id": 7
                }
              }
            },
            "DeleteResponse": {
              "fields": {
                "revision": {
                  "type": "int64",
                  "id": 1
                },
                "object": {
                  "type": "StoredObject",
                  "id": 2
                },
                "history_id": {
                  "type": "string",
                  "id": 3
                },
                "conflict": {
                  "type": "bool",
                  "id": 4
                }
              }
            },
            "DeletePrefixRequest": {
              "fields": {
                "resource": {
                  "type": "string",
                  "id": 1
                },
                "prefix": {
                  "type": "string",
                  "id": 2
                },
                "every_key": {
                  "type": "bool",
                  "id": 3
                },
                "history_id": {
                  "type": "string",
                  "id": 4
                },
                "validate_only": {
                  "type": "bool",
                  "id": 5
                },
                "request_id": {
                  "type": "string",
                  "id": 6
                }
              }
            },
            "DeletePrefixResponse": {
              "fields": {
                "revision": {
                  "type": "int64",
                  "id": 1
                },
                "deleted": {
                  "type": "int64",
                  "id": 2
                },
                "history_id": {
                  "type": "string",
                  "id": 3
                }
              }
            },
            "TransactRequest": {
              "fields": {
                "compares": {
                  "rule": "repeated",
                  "type": "Compare",
                  "id": 1
                },
                "operations": {
                  "rule": "repeated",
                  "type": "Operation",
                  "id": 2
                },
                "return_current": {
                  "type": "bool",
                  "id": 3
                },
                "return_previous": {
                  "type": "bool",
                  "id": 4
                },
                "validate_only": {
                  "type": "bool",
                  "id": 5
                },
                "request_id": {
                  "type": "string",
                  "id": 6
                },
                "history_id": {
                  "type": "string",
                  "id": 7
                }
              }
            },
            "Compare": {
              "oneofs": {
                "condition": {
                  "oneof": [
                    "exists",
                    "mod_revision",
                    "create_revision",
                    "value"
                  ]
                }
              },
              "fields": {
                "resource": {
                  "type": "string",
                  "id": 1
                },
                "key": {
                  "type": "string",
                  "id": 2
                },
                "exists": {
                  "type": "bool",
                  "id": 3
                },
                "mod_revision": {
                  "type": "int64",
                  "id": 4
                },
                "create_revision": {
                  "type": "int64",
                  "id": 5
                },
                "value": {
                  "type": "bytes",
                  "id": 6
                }
              }
            },
            "Operation": {
              "oneofs": {
                "change": {
                  "oneof": [
                    "put",
                    "delete"
                  ]
                }
              },
              "fields": {
                "resource": {
                  "type": "string",
                  "id": 1
                },
                "key": {
                  "type": "string",
                  "id": 2
                },
                "put": {
                  "type": "PutOperation",
                  "id": 3
                },
                "delete": {
                  "type": "DeleteOperation",
                  "id": 4
                }
              }
            },
            "PutOperation": {
              "fields": {
                "value": {
                  "type": "bytes",
                  "id": 1
                },
                "lease": {
                  "type": "int64",
                  "id": 2
                },
                "ttl": {
                  "type": "google.protobuf.Duration",
                  "id": 3
                }
              }
            },
            "DeleteOperation": {
              "fields": {}
            },
            "TransactResponse": {
              "fields": {
                "succeeded": {
                  "type": "bool",
                  "id": 1
                },
                "revision": {
                  "type": "int64",
                  "id": 2
                },
                "history_id": {
                  "type": "string",
                  "id": 3
                },
                "results": {
                  "rule": "repeated",
                  "type": "OperationResult",
                  "id": 4
                },
                "compares": {
                  "rule": "repeated",
                  "type": "CompareResult",
                  "id": 5
                }
              }
            },
            "OperationResult": {
              "fields": {
                "object": {
                  "type": "StoredObject",
                  "id": 1
                },
                "previous": {
                  "type": "StoredObject",
                  "id": 2
                },
                "previous_left_out": {
                  "type": "bool",
                  "id": 3
                }
              }
            },
            "CompareResult": {
              "fields": {
                "held": {
                  "type": "bool",
                  "id": 1
                },
                "object": {
                  "type": "StoredObject",
                  "id": 2
                }
              }
            }
          }
        }
      }
    },
    "google": {
      "nested": {
        "protobuf": {
          "nested": {
            "Duration": {
              "fields": {
                "seconds": {
                  "type": "int64",
                  "id": 1
                },
                "nanos": {
                  "type": "int32",
                  "id": 2
                }
              }
            },
            "Any": {
              "fields": {
                "type_url": {
                  "type": "string",
                  "id": 1
                },
                "value": {
                  "type": "bytes",
                  "id": 2
                }
              }
            },
            "FieldMask": {
              "fields": {
                "paths": {
                  "rule": "repeated",
                  "type": "string",
                  "id": 1
                }
              }
            }
          }
        },
        "rpc": {
          "options": {
            "go_package": "google.golang.org/genproto/googleapis/rpc/status;status",
            "java_multiple_files": true,
            "java_package": "com.google.rpc"
          },
          "nested": {
            "ErrorInfo": {
              "fields": {
                "reason": {
                  "type": "string",
                  "id": 1
                },
                "domain": {
                  "type": "string",
                  "id": 2
                },
                "metadata": {
                  "keyType": "string",
                  "type": "string",
                  "id": 3
                }
              }
            },
            "RetryInfo": {
              "fields": {
                "retry_delay": {
                  "type": "google.protobuf.Duration",
                  "id": 1
                }
              }
            },
            "BadRequest": {
              "fields": {
                "field_violations": {
                  "rule": "repeated",
                  "type": "FieldViolation",
                  "id": 1
                }
              },
              "nested": {
                "FieldViolation": {
                  "fields": {
                    "field": {
                      "type": "string",
                      "id": 1
                    },
                    "description": {
                      "type": "string",
                      "id": 2
                    }
                  }
                }
              }
            },
            "Status": {
              "fields": {
                "code": {
                  "type": "int32",
                  "id": 1
                },
                "message": {
                  "type": "string",
                  "id": 2
                },
                "details": {
                  "rule": "repeated",
                  "type": "google.protobuf.Any",
                  "id": 3
                }
              }
            }
          }
        }
      }
    }
  }
};
