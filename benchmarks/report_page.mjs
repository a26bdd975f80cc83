// Opens a report page in headless Chromium: times, console messages, network requests, axe's findings, pictures. Prints JSON.
//   node report_page.mjs PAGE.html PICTURES_FOLDER CHROMIUM NODE_MODULES
// NODE_MODULES is the folder of playwright-core and axe-core (see report_page.py).
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import path from "node:path";

const [page_file, pictures, chromium_path, modules] = process.argv.slice(2);
const require = createRequire(path.resolve(modules, "..", "here.js"));
const { chromium } = require("playwright-core");
const axe = require.resolve("axe-core/axe.min.js");

const browser = await chromium.launch({ executablePath: chromium_path, args: ["--no-sandbox"] });
const result = { views: [] };
for (const scheme of ["light", "dark"]) {
  for (const width of [1280, 400]) {
    const context = await browser.newContext({ viewport: { width, height: 800 }, colorScheme: scheme, offline: true });
    const page = await context.newPage();
    const said = [];
    const asked = [];
    page.on("console", (message) => said.push(`${message.type()}: ${message.text()}`));
    page.on("pageerror", (error) => said.push(`error: ${error.message}`));
    page.on("request", (request) => request.url().startsWith("file:") || request.url().startsWith("data:") || request.url().startsWith("blob:") || asked.push(request.url()));
    const begun = performance.now();
    await page.goto(pathToFileURL(page_file).href, { waitUntil: "load" });
    const loaded = performance.now();
    await page.waitForFunction(() => document.querySelector(".chart svg, table"));
    const first = performance.now();
    await page.screenshot({ path: path.join(pictures, `${scheme}-${width}-first.png`) });
    await page.waitForFunction(() => document.body.dataset.drawn === "all", null, { timeout: 120000 });
    const all = performance.now();
    const view = { scheme, width, load_s: (loaded - begun) / 1000, first_figure_s: (first - begun) / 1000, all_figures_s: (all - begun) / 1000 };
    view.console = said;
    view.requests = asked;
    view.figures = await page.locator("figure.drawing .chart svg").count();
    view.wider_than_screen = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    // What is cut off: marks' and labels' boxes beyond their picture's.
    view.clipped = await page.evaluate(() =>
      [...document.querySelectorAll(".chart svg")].flatMap((svg) => {
        const box = svg.getBoundingClientRect();
        return [...svg.querySelectorAll("text")]
          .filter((text) => text.textContent && getComputedStyle(text).opacity !== "0")
          .map((text) => [text.textContent, text.getBoundingClientRect()])
          .filter(([, r]) => r.width && (r.left < box.left - 1 || r.right > box.right + 1 || r.top < box.top - 1 || r.bottom > box.bottom + 1))
          .map(([text]) => `${svg.closest("figure").id}: ${text}`);
      }),
    );
    // Axis labels that lie on each other.
    view.overlapping = await page.evaluate(() =>
      [...document.querySelectorAll(".chart svg")].flatMap((svg) => {
        const found = [];
        for (const axis of svg.querySelectorAll(".role-axis-label, .role-legend-label")) {
          const boxes = [...axis.querySelectorAll("text")].filter((t) => getComputedStyle(t).opacity !== "0" && !/rotate/.test(t.getAttribute("transform"))).map((t) => [t.textContent, t.getBoundingClientRect()]);
          for (let i = 1; i < boxes.length; i++) {
            const [a, b] = [boxes[i - 1][1], boxes[i][1]];
            const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
            const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
            if (wide > 1 && high > 4) found.push(`${svg.closest("figure").id}: ${boxes[i - 1][0]} / ${boxes[i][0]}`);
          }
        }
        return found;
      }),
    );
    await page.screenshot({ path: path.join(pictures, `${scheme}-${width}.png`), fullPage: true });
    // A click on a heat map chooses that model in the figure of intervals.
    const cell = page.locator("figure[id$=-heat]").first().locator(".mark-rect.role-mark path").last();
    if (await cell.count()) {
      const select = page.locator("figure[id$=-intervals] select").first();
      const before = await select.inputValue();
      await cell.click({ force: true });
      await page.waitForTimeout(300);
      view.click_chooses = (await select.inputValue()) !== before;
    }
    await page.evaluate(() => document.querySelectorAll("details").forEach((each) => (each.open = true)));
    await page.waitForTimeout(500);
    await page.addScriptTag({ path: axe });
    const found = await page.evaluate(() => axe.run({ resultTypes: ["violations", "incomplete"] }));
    view.axe = {
      version: found.testEngine.version,
      passes: found.passes.length,
      violations: found.violations.map((each) => ({ id: each.id, impact: each.impact, nodes: each.nodes.length, first: each.nodes[0].html.slice(0, 160) })),
      incomplete: found.incomplete.map((each) => ({ id: each.id, nodes: each.nodes.length })),
    };
    if (width === 1280 && scheme === "light") {
      // A figure's files, as a reader gets them.
      view.files = {};
      for (const kind of ["csv", "svg", "png"]) {
        const waiting = page.waitForEvent("download");
        await page.locator(`figure.drawing button[data-as=${kind}]`).first().click();
        const file = await waiting;
        await file.saveAs(path.join(pictures, `saved.${kind}`));
        view.files[kind] = file.suggestedFilename();
      }
    }
    view.console = said;
    result.views.push(view);
    await context.close();
  }
}
await browser.close();
console.log(JSON.stringify(result, null, 1));
