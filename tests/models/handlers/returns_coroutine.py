import runpod


async def work(job):
    return {"seen": job["input"]}


runpod.serverless.start({"handler": lambda job: work(job)})
