"""The echo as a FastAPI application: `uvicorn echo:app`."""

from fastapi import FastAPI
from pydantic import BaseModel


class Input(BaseModel):
    text: str


class Request(BaseModel):
    input: Input


class Response(BaseModel):
    output: str
    status: str = "succeeded"


app = FastAPI()


@app.post("/predictions")
async def predict(request: Request) -> Response:
    return Response(output=request.input.text)
