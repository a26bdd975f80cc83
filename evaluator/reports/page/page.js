"use strict";
(() => {
  // Figures are drawn when they come near the screen, the others when the browser is idle (for printing).
  const configs = JSON.parse(document.getElementById("configs").textContent);
  const figures = [...document.querySelectorAll("figure.drawing")].filter((figure) => figure.querySelector(".spec"));
  const drawn = new Map();

  const ERRORS = 1; // Vega's level for errors only: its warnings are about settings, which a reader can't change.
  const narrow = window.innerWidth < 700;
  if (narrow) {
    configs.screen.legend.columns = 1;
    configs.screen.axis.labelFontSize = 10;
    configs.screen.legend.gradientLength = 110;
  }

  const specOf = (figure) => JSON.parse(figure.querySelector(".spec").textContent);

  function draw(figure) {
    if (!drawn.has(figure)) {
      const bind = figure.querySelector(".choices");
      const options = { mode: "vega-lite", renderer: "svg", actions: false, config: configs.screen, bind, logLevel: ERRORS };
      const result = vegaEmbed(figure.querySelector(".chart"), specOf(figure), options);
      const failed = (error) => {
        figure.querySelector(".chart").textContent = `This figure can't be drawn here (${error.message.slice(0, 120)}); its CSV has the numbers.`;
        return null;
      };
      drawn.set(figure, result.then((made) => ready(figure, made)).catch(failed));
    }
    return drawn.get(figure);
  }

  function ready(figure, made) {
    // The picture's place has a text alternative; the marks in it say nothing more.
    figure.querySelector(".chart svg").setAttribute("aria-hidden", "true");
    follow(figure, made.view);
    return made;
  }

  const choices = (figure) => (specOf(figure).params || []).map((param) => param.name);

  // A click on a mark chooses what it is about in the other figures of the part that have such a choice.
  function follow(figure, view) {
    const others = figures.filter((other) => other !== figure && other.closest("section") === figure.closest("section"));
    const linked = others.filter((other) => choices(other).includes("chosen"));
    view.addEventListener("click", async (event, item) => {
      const chosen = item && item.datum && item.datum.chosen;
      for (const other of chosen ? linked : []) {
        (await draw(other))?.view.signal("chosen", chosen).run();
      }
    });
  }

  // For files a figure is drawn again: on white, as wide as a page, with the choices that are made on the screen.
  async function onPaper(figure, use) {
    const screen = (await draw(figure))?.view;
    if (!screen) {
      return null;
    }
    const spec = { ...specOf(figure), width: 720 };
    delete spec.autosize;
    const chosen = (spec.params || []).map((param) => `${param.bind.name.trim()}: ${screen.signal(param.name)}`);
    spec.title = { text: figure.querySelector("h3").textContent, subtitle: chosen, anchor: "start" };
    const place = document.body.appendChild(Object.assign(document.createElement("div"), { className: "paper" }));
    place.setAttribute("aria-hidden", "true");
    const made = await vegaEmbed(place, spec, { mode: "vega-lite", renderer: "svg", actions: false, config: configs.paper, logLevel: ERRORS });
    for (const name of choices(figure)) {
      made.view.signal(name, screen.signal(name));
    }
    await made.view.runAsync();
    try {
      return await use(made.view);
    } finally {
      made.finalize();
      place.remove();
    }
  }

  const files = {
    csv: async (figure) => new Blob([specOf(figure).data.values], { type: "text/csv" }),
    svg: (figure) => onPaper(figure, async (view) => new Blob([await view.toSVG()], { type: "image/svg+xml" })),
    png: (figure) =>
      onPaper(figure, async (view) => {
        const canvas = await view.toCanvas(2);
        return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
      }),
  };

  async function save(figure, kind) {
    const file = await files[kind](figure);
    if (!file) {
      return;
    }
    const link = document.createElement("a");
    link.href = URL.createObjectURL(file);
    link.download = `${figure.id.replace(/^figure-/, "")}.${kind}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  }

  for (const figure of figures) {
    for (const button of figure.querySelectorAll(".get button")) {
      button.addEventListener("click", () => save(figure, button.dataset.as));
    }
  }

  // Numbers come first in a cell, their intervals behind them; what isn't defined is last in either direction.
  const first = (text) => {
    const found = /^[-−]?[\d.,]+(e[-+]?\d+)?/.exec(text.replace(/<[^>]*>/g, ""));
    return found ? parseFloat(found[0].replace("−", "-").replace(/,/g, "")) : NaN;
  };
  const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  DataTable.type("measured", {
    order: {
      asc: (a, b) => order(isNaN(first(a)) ? Infinity : first(a), isNaN(first(b)) ? Infinity : first(b)),
      desc: (a, b) => order(isNaN(first(b)) ? -Infinity : first(b), isNaN(first(a)) ? -Infinity : first(a)),
    },
  });

  function sortable(details) {
    const table = details.querySelector("table.sorts");
    if (!details.open || !table || table.dataset.sorts) {
      return;
    }
    table.dataset.sorts = "yes";
    const many = table.tBodies[0].rows.length > 25;
    const columns = [...table.tHead.rows[0].cells].map((cell) => (cell.classList.contains("n") ? { type: "measured" } : { type: "string" }));
    const made = new DataTable(table, {
      columns,
      order: [],
      autoWidth: false,
      paging: many,
      pageLength: 25,
      layout: { topStart: "search", topEnd: many ? "pageLength" : null, bottomStart: many ? "info" : null, bottomEnd: many ? "paging" : null },
    });
    const pages = made.table().container().querySelector("nav");
    if (pages) {
      pages.setAttribute("aria-label", `Pages of ${details.querySelector("summary").textContent}`);
    }
  }

  for (const details of document.querySelectorAll("details.table")) {
    details.addEventListener("toggle", () => sortable(details));
    sortable(details);
  }

  const near = new IntersectionObserver(
    (entries) => {
      for (const entry of entries.filter((each) => each.isIntersecting)) {
        near.unobserve(entry.target);
        draw(entry.target);
      }
    },
    { rootMargin: "300px" },
  );
  figures.forEach((figure) => near.observe(figure));

  const idle = window.requestIdleCallback || ((run) => setTimeout(run, 50));
  async function rest() {
    const figure = figures.find((each) => !drawn.has(each));
    if (figure) {
      await draw(figure);
      idle(rest);
    } else {
      document.body.dataset.drawn = "all";
    }
  }
  window.addEventListener("load", () => setTimeout(() => idle(rest), 300));
})();
