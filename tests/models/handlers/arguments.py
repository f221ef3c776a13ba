import argparse

import runpod
from runpod import RunPodLogger

CONFIG = {}


def handler(job):
    parser = argparse.ArgumentParser()
    parser.add_argument("--mine", default="none")
    mine = parser.parse_known_args()[0].mine
    told = {key: CONFIG["rp_args"][key] for key in ("rp_log_level", "rp_debugger", "rp_api_port")}
    print("TOLD", mine, RunPodLogger().level, told)
    return 1


CONFIG["handler"] = handler
runpod.serverless.start(CONFIG)
