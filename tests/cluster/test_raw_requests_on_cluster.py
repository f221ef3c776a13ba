"""The tests of Replicate's API without a client, against two API processes in turn and two directors."""

import test_raw_requests
from test_raw_requests import *  # noqa: F403

#: They need a server with one slot, links that follow the host of the request, or webhooks that are not
#: combined. A reader of a stream that has ended gets the events of the record, which combines log lines.
SINGLE_SERVER = (
    "test_queue_time_is_not_part_of_predict_time",
    "test_old_clients_see_canceled_instead_of_aborted",
    "test_the_official_clients_handle_an_aborted_prediction",
    "test_links_follow_the_host_of_the_request_or_the_public_url",
    "test_webhook_bodies_equal_the_response_to_a_get",
    "test_all_readers_of_a_stream_get_the_same_event_ids",
)
for name in SINGLE_SERVER:
    assert hasattr(test_raw_requests, name), name
    del globals()[name]
