import runpod


@runpod.serverless.register_fitness_check
def disk():
    print("the disk is fine")


@runpod.serverless.register_fitness_check
async def gpu():
    raise RuntimeError("there is no GPU")


runpod.serverless.start({"handler": lambda job: 1})
