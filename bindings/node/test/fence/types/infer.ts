// Checks that each framework gives `resource` its own type of request, without annotations.
import { createServer } from "node:http";
import express from "express";
import Fastify, { type FastifyRequest } from "fastify";
import { type Context, Hono } from "hono";
import * as fence from "../../../src/fence/index.js";

export function frameworks(): void {
  const app = express();
  app.put("/account/:id", fence.fenceExpress({ resource: (req) => `account/${req.params["id"]}` }), (_req, res) => void res.end());
  app.use(fence.fenceExpress({ resource: (req) => (req.get("x") ? req.originalUrl : null) }));
  const router = express.Router({ mergeParams: true });
  router.post("/:file", fence.fenceExpress({ resource: ({ params, body, path }) => params.file + body.name + path }));
  // @ts-expect-error there is no such thing
  app.use(fence.fenceExpress({ resource: (req) => req.nothing }));
  // @ts-expect-error a number is no name
  app.use(fence.fenceExpress({ resource: (req) => req.path.length }));

  const fastify = Fastify();
  fastify.addHook("preHandler", fence.fenceFastify({ resource: (request) => `account/${request.params.id}` }));
  const preHandler = fence.fenceFastify({ resource: (request) => request.hostname });
  fastify.put("/account/:id", { preHandler }, async () => "x");
  fastify.put("/b/:id", { preHandler: fence.fenceFastify({ resource: (request) => request.params.id }) }, async () => "x");
  fastify.put<{ Params: { id: string } }>(
    "/c/:id",
    { preHandler: fence.fenceFastify({ resource: (request) => `c/${request.params.id}` }) },
    async (request) => request.params.id,
  );

  const hono = new Hono<{ Variables: { who: string } }>();
  hono.use("/account/:id", fence.fenceHono({ resource: (c) => `account/${c.req.param("id")}${c.get("who")}` }));
  hono.put("/account/:id", fence.fenceHono({ resource: (c) => c.req.param("id") }), (c) => c.text(c.get("who")));
  fence.fenceFetch((request) => new Response(request.url), { resource: (request) => request.headers.get("x") });
}

/** Requests of Node's own servers have fewer properties. */
export function plain(): void {
  createServer((req, res) => {
    fence.fenceExpress()(req, res, () => {});
    fence.fenceExpress({ optional: true, gate: new fence.Gate() })(req, res, () => {});
    fence.fenceExpress({ resource: (request: fence.NodeRequest) => request.url })(req, res, () => {});
    // @ts-expect-error it has no parameters of a route
    fence.fenceExpress({ resource: (request) => request.params.id })(req, res, () => {});
  });
}

/** A function that declares its argument gets that type. */
export function annotated(): void {
  express().put("/:id", fence.fenceExpress({ resource: (req: express.Request) => req.ip }));
  const options: fence.FenceOptions<Context> = { resource: (c) => c.req.path, optional: true };
  new Hono().use(fence.fenceHono(options));
  Fastify().addHook("onRequest", fence.fenceFastify({ resource: (request: FastifyRequest) => request.routeOptions.url }));
}
